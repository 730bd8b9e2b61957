package roce

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// TestPartsWithinBlocks reads keys from which a transfer must begin at the boundary of a block, at a
// high address and over a network that loses packets, so that the READs are sent in parts. One
// outstanding READ is the smallest ring of the responder.
func TestPartsWithinBlocks(t *testing.T) {
	const block, blocks, reads = 520, 200, 8
	for _, atomics := range []int{1, 2, 16} {
		t.Run(fmt.Sprint(atomics), func(t *testing.T) {
			lossy := netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 50 * time.Microsecond, Loss: 0.05}
			l := newLinked(t, pairOptions{mtu: 1024, rdAtomic: atomics}, lossy, lossy, 1)
			data := pattern(block*blocks, 3)
			l.mem[1].keys[1] = data
			l.mem[1].refuse = func(_ uint32, va uint64, _ uint32) NAK {
				if va%lowestDivided%block != 0 {
					return NAKRemoteAccess
				}
				return NAKNone
			}
			var into [reads]*sink
			for i := range into {
				into[i] = &sink{b: make([]byte, len(data)-i*block)}
				l.post(0, &Work{Op: ibv.WRRead, Length: uint32(len(into[i].b)), Dst: into[i], RKey: 1, RemoteAddr: lowestDivided + uint64(i*block)})
			}
			if !l.run(time.Hour, func() bool { l.pump(); return len(l.mem[0].ended) == reads || len(l.mem[0].failed) > 0 }) {
				t.Fatal("not done after an hour")
			}
			l.mem[0].allSucceeded(reads)
			for i, s := range into {
				if !bytes.Equal(s.b, data[i*block:]) {
					t.Errorf("READ %d: wrong bytes", i)
				}
			}
			if n := l.port[1].Counters().ReadRequests; n < 2*reads {
				t.Errorf("%d READ requests for %d READs: they were not sent in parts", n, reads)
			}
			l.idle()
		})
	}
}

// TestFalseContinuation gives a responder READ requests that state that they continue the one
// before them, but do not. They are opened at their own address.
func TestFalseContinuation(t *testing.T) {
	before := resource{kind: wire.ReadRequest, rkey: 1, va: 4096, length: 100, skip: 50, reported: 7}
	for _, c := range []struct {
		name   string
		before resource
		e      resource
		skip   uint32
	}{
		{"the next part", before, resource{rkey: 1, va: 4196, length: 100}, 150},
		{"the first request", resource{}, resource{rkey: 1, va: 4196, length: 100}, 0},
		{"after an unused entry", resource{}, resource{length: 100}, 0},
		{"after an atomic", resource{kind: wire.FetchAdd, rkey: 1, va: 4096, length: 100}, resource{rkey: 1, va: 4196, length: 100}, 0},
		{"another key", before, resource{rkey: 2, va: 4196, length: 100}, 0},
		{"a gap", before, resource{rkey: 1, va: 4197, length: 100}, 0},
		{"an overlap", before, resource{rkey: 1, va: 4195, length: 100}, 0},
		{"the longest message", before, resource{rkey: 1, va: 4196, length: MaxMessage - 150}, 150},
		{"longer than a message", before, resource{rkey: 1, va: 4196, length: MaxMessage - 149}, 0},
	} {
		if c.e.continues(c.before); c.e.skip != c.skip {
			t.Errorf("%s: skips %d bytes, want %d", c.name, c.e.skip, c.skip)
		}
		if carried := c.e.reported == 7; carried != (c.skip > 0) {
			t.Errorf("%s: reported %d", c.name, c.e.reported)
		}
	}
}
