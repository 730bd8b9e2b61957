package interop

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
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
	if c := n.device(false).Counters(); c.BadICRC == 0 {
		t.Errorf("the device found no damaged packet: %+v", c)
	}
}

// impair adds faults to the link of a guest. The returned function restores it.
func impair(t *testing.T, g *rig.Guest, toGuest, fromGuest rig.Impairment) (restore func()) {
	t.Helper()
	check(t, g.Impair(t.Context(), toGuest, fromGuest))
	return func() {
		if err := g.Impair(t.Context(), rig.Impairment{}, rig.Impairment{}); err != nil {
			t.Error(err)
		}
	}
}

// impaired runs the table over an impaired link and returns the packet counts.
func impaired(t *testing.T, n *network, bad rig.Impairment, mtu int) (toGuest, fromGuest rig.Impaired) {
	t.Helper()
	guest := n.r.Guest
	opened := func() (*deviceEnd, *guestEnd) {
		a, b := n.open(t, false)
		c := peer.Defaults()
		c.MTU, c.Timeout, c.RetryCount = mtu, 13, 7 // 34 ms: the kernel waits for nothing else after a loss
		// Our device measures round trips. Its timeout is only for a peer that is
		// silent, and on a busy machine an emulated guest was seen silent for more
		// than eight times 34 ms.
		a.timeout = 17 // 537 ms
		join(t, a, b, false, c)
		return a, b
	}
	a, b := opened()
	before, err := b.s.Counters(t.Context())
	check(t, err)
	defer impair(t, guest, bad, bad)()
	sizes := []int{0, 1, mtu, mtu + 1, 5*mtu + 3, 64<<10 + 1}
	if !testing.Short() {
		// No longer messages: after each loss the kernel reads the whole rest of
		// a message again.
		sizes = append(sizes, 512*mtu+1, 2048*mtu+5)
	}
	for try := 1; ; try++ {
		pcap := filepath.Join(t.TempDir(), "loss.pcapng")
		capture, err := n.r.Capture(guest, pcap)
		check(t, err)
		err = attempt(func(r reporter) { table(r, a, b, sizes) })
		check(t, capture.Stop())
		if err == nil {
			break
		}
		changed := changedPacket(packets(pcap, fmt.Sprintf("ip.src == %s && infiniband.bth.destqp == %d", guest.Addr4, a.qpn()),
			"infiniband.bth.psn", "infiniband.bth.opcode", "udp.length"))
		// A link that damages packets changes them, too.
		if changed == "" || bad.Corrupt > 0 || try == mostFaults {
			t.Fatalf("%v (%s)", err, changed)
		}
		t.Logf("again, because of the kernel: %s; %v", changed, err)
		a, b = opened()
	}

	toGuest, fromGuest, err = guest.Impairments(t.Context())
	check(t, err)
	kernel, err := b.s.Counters(t.Context())
	check(t, err)
	for name := range kernel {
		kernel[name] -= before[name]
	}
	device := n.device(false).Counters()
	if device.Retransmitted == 0 || kernel["completer_retry_err"] == 0 {
		t.Errorf("nobody sent anything again")
	}
	t.Logf("the link: %+v to the guest, %+v from it", toGuest, fromGuest)
	t.Logf("the kernel: %v", kernel)
	t.Logf("the device: %+v", device)
	return toGuest, fromGuest
}

// mostFaults is the number of attempts against a kernel that shows the fault of
// changedPacket.
const mostFaults = 3

// attempt runs f in a goroutine and returns its failures.
func attempt(f func(reporter)) error {
	var r attempted
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(&r)
	}()
	<-done
	return errors.Join(r.failures...)
}

// attempted is the reporter of an attempt.
type attempted struct{ failures []error }

func (r *attempted) Helper()                        {}
func (r *attempted) Error(v ...any)                 { r.failures = append(r.failures, errors.New(fmt.Sprint(v...))) }
func (r *attempted) Fatal(v ...any)                 { r.Error(v...); runtime.Goexit() }
func (r *attempted) Errorf(format string, v ...any) { r.Error(fmt.Sprintf(format, v...)) }
func (r *attempted) Fatalf(format string, v ...any) { r.Errorf(format, v...); runtime.Goexit() }

// changedPacket looks for a fault of soft-RoCE in Linux 6.1 as a requester: on a very busy
// machine, its retry sends an empty SEND under the PSN of another packet, and all packets
// after it under PSNs that are larger by one. No responder can answer that. A packet is
// its PSN, opcode and length, with commas between them; the result is "" if no PSN was
// sent with two packets. A repeated READ request may be shorter, and answers of the
// responder have PSNs of the other direction, so both are left out.
func changedPacket(packets []string) string {
	first := make(map[string]string)
	for _, p := range packets {
		psn, packet, _ := strings.Cut(p, ",")
		opcode, _, _ := strings.Cut(packet, ",")
		switch opcode {
		case "12", "13", "14", "15", "16", "17", "18": // READ request; answers
			continue
		}
		if old, ok := first[psn]; ok && old != packet {
			return fmt.Sprintf("PSN %s was sent as opcode and length %s and as %s", psn, old, packet)
		}
		first[psn] = packet
	}
	return ""
}

func TestChangedPacket(t *testing.T) {
	for _, test := range []struct {
		packets string
		want    bool
	}{
		{"5,0,1048 6,2,100 5,0,1048 6,2,100", false}, // repeated
		{"5,12,40 6,4,100 5,12,36 6,4,100", false},   // a shorter READ
		{"5,4,100 5,17,28 5,16,60 5,17,28", false},   // answers with the same PSN
		{"5,4,100 6,4,100 6,5,32 7,4,100", true},     // the fault
	} {
		if got := changedPacket(strings.Fields(test.packets)); (got != "") != test.want {
			t.Errorf("%s: %q", test.packets, got)
		}
	}
}
