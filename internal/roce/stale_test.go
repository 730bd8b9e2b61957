package roce

import (
	"os"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// again transfers bytes with requests of 64 KiB, over a link on which other transfers may have ended.
func (l *linked) again(t testing.TB, op ibv.WROp, bytes int) {
	t.Helper()
	l.mem[0].began, l.mem[0].ended = nil, nil
	transfer(t, l, op, bytes, min(bytes, 64<<10), 4)
	l.run(time.Duration(l.clock)+time.Second, nil)
}

// leave moves both QPs on by n PSNs without a loss, a READ or a grant. In the long form it sends WRITEs of
// n packets. In the short form it sends nothing, and makes the changes that n acknowledged packets of WRITEs
// would make to the PSNs of the requester and of the responder.
func (l *linked) leave(t testing.TB, n int) {
	if os.Getenv("SOFTMKEY_LONG") != "" {
		for ; n > 0; n -= 1 << 18 {
			l.again(t, ibv.WRWrite, min(n, 1<<18)*l.qp[0].mtu())
		}
		return
	}
	q, s := l.qp[0], &l.qp[1].resp
	r := &q.req
	for n > 0 {
		step := min(n, 1<<15)
		n -= step
		before := r.una
		r.end, r.next, r.high = psnAdd(r.end, step), psnAdd(r.next, step), psnAdd(r.high, step)
		r.pass(step)
		q.progressed(before, false, l.clock)
		l.qp[1].expectAfter(step)
		s.done = psnAdd(s.psn, -1)
	}
	l.run(time.Duration(l.clock)+time.Second, nil)
}

// TestOldPSNs transfers 1 MiB over a path with loss, then more than 2^23 packets without loss, then 1 MiB with
// the same loss again. PSNs of the first losses are too old by then to be compared. The requester and the
// responder must not send more than a quarter more packets for the last MiB than for the one before.
func TestOldPSNs(t *testing.T) {
	clean := netLink{Rate: 10_000 * mbit, Delay: 20 * time.Microsecond}
	lossy := clean
	lossy.Loss = 0.05
	for _, first := range []ibv.WROp{ibv.WRRead, ibv.WRWrite} {
		l := newLinked(t, pairOptions{mtu: 256, rdAtomic: 16}, lossy, lossy, 1)
		var costs [3]uint64
		for round := range costs {
			l.reroute(lossy, lossy, 2)
			sent := l.port[0].Counters().SentPackets + l.port[1].Counters().SentPackets
			l.again(t, first, 1<<20)
			costs[round] = l.port[0].Counters().SentPackets + l.port[1].Counters().SentPackets - sent
			l.reroute(clean, clean, 3)
			if round > 0 {
				l.leave(t, 1<<23+1000)
			} else {
				l.leave(t, 1<<20) // the windows grow to their limit
			}
		}
		t.Logf("%v: %d packets for 1 MiB", first, costs)
		if costs[2] > costs[1]*5/4 {
			t.Errorf("%v: %d packets, and %d after half of all PSNs", first, costs[1], costs[2])
		}
		l.idle()
	}
}

// TestOldRead repeats a READ request that has the same PSN as a READ 2^24 packets before it. The responder
// must answer the later READ again, and must not find the earlier one.
func TestOldRead(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 256, rdAtomic: 16})
	l.m.keys[1] = pattern(2048, 1)
	read := func(at uint64) []byte { return pkt(wire.ReadRequest, 0, true, 0, reth(1, at, 512)) }
	l.give(read(0))
	for n := psnMask + 1 - 2; n > 0; {
		step := min(n, 1<<20-1)
		l.q.expectAfter(step)
		n -= step
	}
	l.give(read(1024))
	l.give(read(1024))
	if n := len(l.m.reported); n != 3 {
		t.Errorf("the READs were opened %d times, want 3", n)
	}
	if n := l.port[1].Counters().StaleRequests; n != 0 {
		t.Errorf("%d stale requests", n)
	}
}
