package interop

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/interop/rig"
)

// TestLoss runs the table over a link that loses one packet in a hundred,
// reorders some and duplicates some, in both directions, and then looks at what
// both sides counted.
func TestLoss(t *testing.T) {
	n := newNetwork(t)
	guest := n.r.Guests[0]
	for _, mtu := range []int{256, 1024, 4096} {
		t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) {
			a, b := n.open(t, ours, false), n.open(t, 0, false)
			c := peer.Defaults()
			c.MTU, c.Timeout, c.RetryCount = mtu, 13, 7 // 34 ms
			join(t, a, b, false, c)
			before, err := b.(*guestEnd).s.Counters(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			deviceBefore := n.device(false).Transport().Counters()

			bad := rig.Impairment{Loss: 1, Reorder: 1, Duplicate: 0.5, DelayMS: 1}
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
				sizes = append(sizes, 1<<20, 4<<20+1)
			}
			table(t, a, b, sizes)

			toGuest, fromGuest, err := guest.Impairments(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if toGuest.Dropped == 0 || fromGuest.Dropped == 0 {
				t.Errorf("the link lost nothing: %+v to the guest, %+v from it", toGuest, fromGuest)
			}
			after, err := b.(*guestEnd).s.Counters(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name := range after {
				after[name] -= before[name]
			}
			device := n.device(false).Transport().Counters()
			if device.Retransmitted == deviceBefore.Retransmitted || after["completer_retry_err"] == 0 {
				t.Errorf("nobody repeated anything")
			}
			t.Logf("the link: %+v to the guest, %+v from it", toGuest, fromGuest)
			t.Logf("the kernel: %v", after)
			t.Logf("the device: %+v", device)
		})
	}
}
