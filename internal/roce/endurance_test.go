package roce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// TestConnectionsStayInUse keeps connections in use for a day of virtual time
// in the long form, and for a few minutes otherwise. Each has a mix of
// operations in both directions, with pauses, and its network changes at
// random, sometimes in the middle of messages. Every message must complete
// within patience. After each batch the QPs must be idle and keep no packets.
func TestConnectionsStayInUse(t *testing.T) {
	const (
		connections = 24
		patience    = 10 * time.Minute
	)
	day := 8 * time.Minute
	switch {
	case os.Getenv("SOFTMKEY_LONG") != "":
		day = 24 * time.Hour
	case testing.Short():
		day = 2 * time.Minute
	}
	var total, busy time.Duration
	var batches, packets uint64
	for c := range uint64(connections) {
		rnd := rand.New(rand.NewPCG(c, 11))
		change := func() (there, back netLink) {
			there, back = randomLink(rnd), randomLink(rnd)
			there.Loss, back.Loss = there.Loss/4, back.Loss/4
			return there, back
		}
		there, back := change()
		l := newLinked(t, pairOptions{
			mtu: 256 << rnd.IntN(5), psn: [2]uint32{rnd.Uint32(), rnd.Uint32()}, ipv6: c%2 == 1,
			rdAtomic: 1 + rnd.IntN(16), rnrTimer: 1,
		}, there, back, c)
		state := func() string {
			return fmt.Sprintf("connection %d at %v, there %+v, back %+v; %s", c, time.Duration(l.clock), there, back, describe(l))
		}
		for l.clock < int64(day)/connections {
			for _, m := range l.mem {
				m.began, m.ended, m.got = nil, nil, nil
				clear(m.keys)
				clear(m.stale)
			}
			finish := mixed(t, l.mem, rnd, 1+rnd.IntN(12))
			began := l.clock
			l.post(0)
			l.post(1)
			if rnd.IntN(3) == 0 {
				l.run(time.Duration(l.clock+rnd.Int64N(int64(20*time.Millisecond))), nil)
				there, back = change()
				l.reroute(there, back, rnd.Uint64())
			}
			if !l.run(time.Duration(l.clock)+patience, nil) {
				t.Fatalf("stuck: %s", state())
			}
			finish()
			l.idle()
			for i := range l.port {
				if n := l.port[i].kept.used.Load(); n != 0 {
					t.Errorf("side %d keeps %d bytes of READs", i, n)
				}
			}
			if t.Failed() {
				t.Fatal(state())
			}
			busy += time.Duration(l.clock - began)
			batches++
			l.clock += rnd.Int64N(int64(time.Second))
		}
		total += time.Duration(l.clock)
		for i := range l.port {
			packets += l.port[i].Counters().SentPackets
		}
	}
	t.Logf("%d connections, %v of virtual time, %v of it with messages under way; %d batches, %d packets", connections, total.Round(time.Minute), busy.Round(time.Second), batches, packets)
}
