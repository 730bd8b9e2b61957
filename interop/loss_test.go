package interop

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/interop/rig"
)

// TestLoss runs the table over a link that loses one packet in a hundred and reorders and
// duplicates some, in both directions. It then checks the counters of both sides.
func TestLoss(t *testing.T) {
	bad := rig.Impairment{Loss: 1, Reorder: 1, Duplicate: 0.5, DelayMS: 1}
	for _, mtu := range []int{256, 1024, 4096} {
		t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) {
			n := newNetwork(t)
			toGuest, fromGuest := impaired(t, n, bad, mtu)
			if toGuest.Dropped == 0 || fromGuest.Dropped == 0 {
				t.Errorf("the link lost nothing")
			}
		})
	}
}

// TestCorruption flips a bit of one packet in fifty. The invariant CRC must detect each,
// although our device does not know the IPv4 identification that the CRC covers: a single
// flipped bit never looks like another identification.
func TestCorruption(t *testing.T) {
	n := newNetwork(t)
	n.damaging = true
	impaired(t, n, rig.Impairment{Corrupt: 2}, 1024)
	if c := n.device(false).Transport().Counters(); c.BadICRC == 0 {
		t.Errorf("the device found no damaged packet: %+v", c)
	}
}

// impaired runs the table over an impaired link and returns the packet counts.
func impaired(t *testing.T, n *network, bad rig.Impairment, mtu int) (toGuest, fromGuest rig.Impaired) {
	t.Helper()
	guest := n.r.Guests[0]
	a, b := n.open(t, ours, false), n.open(t, 0, false).(*guestEnd)
	c := peer.Defaults()
	c.MTU, c.Timeout, c.RetryCount = mtu, 13, 7 // 34 ms: the kernel waits for nothing else after a loss
	// Our device measures round trips. Its timeout is only for a peer that is silent, and
	// on a busy machine an emulated guest was seen silent for more than eight times 34 ms.
	a.(*deviceEnd).timeout = 17 // 537 ms
	join(t, a, b, false, c)
	before, err := b.s.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Impair(t.Context(), bad, bad); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := guest.Impair(t.Context(), rig.Impairment{}, rig.Impairment{}); err != nil {
			t.Error(err)
		}
	}()
	sizes := []int{0, 1, mtu, mtu + 1, 5*mtu + 3, 64<<10 + 1}
	if !testing.Short() {
		// No longer messages: after each loss the kernel reads the whole rest of
		// a message again.
		sizes = append(sizes, 512*mtu+1, 2048*mtu+5)
	}
	table(t, a, b, sizes)

	if toGuest, fromGuest, err = guest.Impairments(t.Context()); err != nil {
		t.Fatal(err)
	}
	kernel, err := b.s.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range kernel {
		kernel[name] -= before[name]
	}
	device := n.device(false).Transport().Counters()
	if device.Retransmitted == 0 || kernel["completer_retry_err"] == 0 {
		t.Errorf("nobody sent anything again")
	}
	t.Logf("the link: %+v to the guest, %+v from it", toGuest, fromGuest)
	t.Logf("the kernel: %v", kernel)
	t.Logf("the device: %+v", device)
	return toGuest, fromGuest
}
