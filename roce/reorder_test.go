package roce

import (
	"fmt"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/roce/netem"
)

func TestReordering(t *testing.T) {
	const rtt = 100
	r := (*reordering)(nil).lose(1)
	for i, s := range []struct {
		do   func()
		most int // with 1000 packets in flight
	}{
		{func() {}, reorderPackets},
		{func() { r.confirmed() }, reorderPackets}, // of no packet
		{func() { r.arrived(7, 5, 40, rtt, 1000); r.answered(5); r.confirmed() }, reorderPackets},
		{func() { r.arrived(7, 5, 40, rtt, 1000); r.arrivedAgain(6); r.answered(4) }, reorderPackets},
		{func() { r.arrivedAgain(7) }, 51},
		{func() { r.arrived(7, 5, 20, rtt, 2000); r.confirmed() }, 51},
		{func() { r.arrived(7, 5, 60, rtt, 3000); r.arrived(7, 5, 80, rtt, 3000+rtt); r.confirmed() }, 76},
		{func() { r.arrived(7, 5, 60, rtt, 4000); r.arrived(7, 5, 80, rtt, 4000+2*rtt); r.confirmed() }, 101},
		{func() { r = r.lose(forgetAfter - 1) }, 101},
		{func() { r.lose(1) }, 50},
		{func() { r.lose(1 << 40) }, 25},
		{func() { r.arrived(7, 5, 1<<20, rtt, 5000); r.confirmed() }, 1000},
	} {
		s.do()
		if got := r.most(1000); got != s.most {
			t.Errorf("step %d: %d, want %d", i, got, s.most)
		}
	}
	if got := r.most(10); got != 10 {
		t.Errorf("%d of 10 packets in flight", got)
	}
	if got := r.most(1); got != reorderPackets {
		t.Errorf("%d with one packet in flight", got)
	}
}

// TestReorderingLinks transfers over paths that reorder every tenth packet, and lose none. Few packets may
// be taken for lost, and the rate must be about that of the same path without reordering. (The window for
// READ responses is cut until the requester has learned how far they overtake one another.)
func TestReorderingLinks(t *testing.T) {
	const bytes, mtu = 32 << 20, 1024
	for _, delay := range []time.Duration{200 * time.Microsecond, 2 * time.Millisecond} {
		for _, op := range []rdma.WROp{rdma.WRWrite, rdma.WRRead} {
			t.Run(fmt.Sprintf("%v, %v", delay, op), func(t *testing.T) {
				var took [2]time.Duration
				var lost uint64
				for i, reorder := range []float64{0, 0.1} {
					link := netem.Link{Rate: 1000 * mbit, Queue: 8192 * kb, Delay: delay, Reorder: reorder, ReorderBy: delay}
					l := newLinked(t, pairOptions{mtu: mtu, selective: true, rdAtomic: 16}, link, link, 1)
					took[i] = transfer(t, l, op, bytes, 1<<20, 16)
					lost = l.port[0].Counters().LostPackets
				}
				t.Logf("%v, and %v with reordering; %d of %d packets taken for lost", took[0], took[1], lost, bytes/mtu)
				if took[1] > took[0]*5/4 || lost > bytes/mtu/50 {
					t.Errorf("%v, and %v with reordering, want a quarter more at most; %d of %d packets taken for lost, want one in 50 at most", took[0], took[1], lost, bytes/mtu)
				}
			})
		}
	}
}

// TestCopies gives a responder packets twice. Its SelectiveAck has their number in its mark.
func TestCopies(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 256, selective: true})
	for range 2 {
		l.m.recv(make([]byte, 256))
	}
	send := func(psn uint32) []byte { return pkt(wire.SendOnly, psn, false, 4) }
	l.arrive(send(0), send(2), send(0), send(2), send(2))
	sent := l.drain(1)
	for _, b := range sent {
		if h, _, _ := wire.ParseBTH(b); h.Opcode == wire.SelectiveAck && h.Mark == 3 {
			return
		}
	}
	t.Errorf("no SelectiveAck with mark 3 among %d packets", len(sent))
}

// TestLostTail loses all responses of a READ but the first ones. One probe must be enough to find out:
// its answer shows that nothing else is under way.
func TestLostTail(t *testing.T) {
	link := netem.Link{Rate: 1000 * mbit, Delay: 50 * time.Microsecond}
	l := newLinked(t, pairOptions{mtu: 256, selective: true, rdAtomic: 1}, link, link, 1)
	l.mem[1].keys[1] = pattern(64<<10, 1)
	l.post(0, &Work{Op: rdma.WRRead, Length: 64 << 10, RKey: 1, Dst: &sink{b: make([]byte, 64<<10)}})
	lost := false
	l.run(time.Minute, func() bool {
		if !lost && len(l.line) == 256 {
			lost = true
			kept := l.line[:0]
			for _, f := range l.line {
				if h, _, _ := wire.ParseBTH(f.b); psnDiff(h.PSN, l.qp[0].req.una) < 20 {
					kept = append(kept, f)
				}
			}
			l.line = kept
		}
		return false
	})
	if n := l.port[0].Counters().Probes; !lost || n != 1 {
		t.Errorf("lost the tail: %v; %d probes, want 1", lost, n)
	}
	l.mem[0].allSucceeded(1)
	l.idle()
}

// TestOldMark gives a requester a READ response that must wait for the one before it. When that arrives, 119
// more RepeatResponses were sent, and the mark of the waiting response, modulo 128, looks like a new one. It
// must not count as an answer to them.
func TestOldMark(t *testing.T) {
	l := alone(t, 0, pairOptions{mtu: 256, selective: true, rdAtomic: 1})
	l.post(0, &Work{Op: rdma.WRRead, Length: 1024, RKey: 1, Dst: &sink{b: make([]byte, 1024)}})
	l.sent()
	r := &l.q.req.reads
	response := func(psn uint32, op wire.Opcode, mark uint8, ext ...[]byte) []byte {
		return marked(pkt(op, psn, false, 256, ext...), mark)
	}
	r.askMark, r.gotMark = 99, 99
	l.give(response(1, wire.ReadResponseMiddle, 99))
	r.askMark, r.gotMark = 110, 90 // 119 requests for responses later
	l.give(response(0, wire.ReadResponseFirst, 90, aeth(wire.ACKNoCredits)))
	if r.gotMark != 90 || psnDiff(l.q.req.una, 2) != 0 {
		t.Errorf("mark %d, want 90; una is %d", r.gotMark, l.q.req.una)
	}
}
