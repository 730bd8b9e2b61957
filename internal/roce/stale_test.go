package roce

import (
	"testing"

	"github.com/softmkey/softmkey/internal/net/wire"
)

// TestOldRead repeats a READ request that has the same PSN as a READ 2^24 packets before it. The responder
// must answer the later READ again, and must not find the earlier one.
func TestOldRead(t *testing.T) {
	l := alone(t, 1, pairOptions{mtu: 256, rdAtomic: 16})
	l.m.keys[1] = pattern(2048, 1)
	read := func(at uint64) []byte { return pkt(wire.ReadRequest, 0, true, 0, reth(1, at, 512)) }
	l.give(read(0))
	for n := psnMask + 1 - 2; n > 0; {
		step := min(n, 1<<20-1)
		l.q.resp.expectAfter(step)
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
