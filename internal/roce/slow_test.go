package roce

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// TestSlowReads READs from a standard peer that pauses once and then sends a response every
// 50 µs, so that a READ takes nearly as long as a full timeout. The requester cannot know of
// the pause and repeats the READ. The peer answers every copy in full. The requester must not
// repeat the READs that wait behind the copies: they would be answered in full, too, and the
// peer would never finish.
func TestSlowReads(t *testing.T) {
	const mtu, size, reads = 1024, 1 << 20, 6
	p := newPair(t, pairOptions{mtu: mtu})
	data := pattern(size, 1)
	p.mem[1].keys[1] = data
	small := make([]byte, 8)
	p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: small}, Length: 8, RKey: 1}) // to measure the round trip
	p.run(1 << 10)

	requests := 0
	p.watch = func(to int, b []byte) {
		if to == 1 && opcodeOf(b) == wire.ReadRequest {
			requests++
		}
	}
	var queue [][]byte
	next := p.clock + 20e6
	p.fault = func(to int, b []byte) [][]byte {
		if to == 1 {
			return [][]byte{b}
		}
		queue = append(queue, bytes.Clone(b))
		return nil
	}
	got := make([][]byte, reads)
	for i := range got {
		got[i] = make([]byte, size)
		p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: got[i]}, Length: size, RKey: 1})
	}
	for range 1 << 20 {
		if len(p.mem[0].ended) > reads {
			break
		}
		if p.step(); len(queue) > 0 && p.clock >= next {
			p.deliver(0, queue[0], 0)
			queue = queue[1:]
			next = max(next+50e3, p.clock)
		}
	}
	p.mem[0].allSucceeded(reads + 1)
	for i := range got {
		if !bytes.Equal(got[i], data) {
			t.Errorf("READ %d: wrong data", i)
		}
	}
	if requests > 5*reads {
		t.Errorf("%d requests for %d READs", requests, reads)
	}
	t.Logf("%d requests for %d READs, %d ms", requests, reads, p.clock/1e6)
}
