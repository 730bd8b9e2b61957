package roce

import (
	"encoding/binary"
	"sync/atomic"
)

// Limits of the packets that a QP keeps because packets before them are missing.
const (
	maxEarly       = 1 << 14  // distance to the expected packet
	maxEarlyBytes  = 16 << 20 // of one direction of a QP
	portEarlyBytes = 64 << 20 // of all QPs of a port
)

// early holds packets that arrived before one that precedes them, until that one comes:
// requests at a responder, responses at a requester. Its memory is bounded per QP and
// per port; a packet that has no room is dropped, and the peer sends it again.
type early struct {
	ring  [][]byte // indexed with the PSN; nil: not here. A power of two
	count int
	bytes int
	total *atomic.Int64 // bytes of all QPs of the port
}

// put keeps a copy of packet b, whose PSN is d after the expected one. It reports
// whether the packet is kept; one that is there already is.
func (e *early) put(psn uint32, d int, b []byte) bool {
	if d >= maxEarly || e.bytes+len(b) > maxEarlyBytes {
		return false
	}
	if d >= len(e.ring) {
		e.grow(d+1, psnAdd(psn, -d))
	}
	slot := e.slot(psn)
	if *slot != nil {
		if psnOf(*slot) == psn {
			return true
		}
		e.drop(slot) // of a number that was passed over
	}
	if e.total.Add(int64(len(b))) > portEarlyBytes {
		e.total.Add(-int64(len(b)))
		return false
	}
	*slot = append(make([]byte, 0, len(b)), b...)
	e.count++
	e.bytes += len(b)
	return true
}

// psnOf returns the PSN of a packet.
func psnOf(b []byte) uint32 { return binary.BigEndian.Uint32(b[8:]) & psnMask }

// slot returns the place of a PSN in the ring.
func (e *early) slot(psn uint32) *[]byte { return &e.ring[int(psn)&(len(e.ring)-1)] }

// drop empties a slot.
func (e *early) drop(slot *[]byte) {
	n := len(*slot)
	*slot = nil
	e.count--
	e.bytes -= n
	e.total.Add(-int64(n))
}

// grow makes room for n packets; base is the expected PSN, which none of them precedes.
func (e *early) grow(n int, base uint32) {
	size := 64
	for size < n {
		size *= 2
	}
	old := e.ring
	e.ring = make([][]byte, size)
	for i := range old {
		if old[i] == nil {
			continue
		}
		if d := psnDiff(psnOf(old[i]), base); d < 0 || d >= size {
			e.drop(&old[i])
			continue
		}
		*e.slot(psnOf(old[i])) = old[i]
	}
}

// has reports whether the packet psn is kept.
func (e *early) has(psn uint32) bool {
	if e.count == 0 {
		return false
	}
	b := *e.slot(psn)
	return b != nil && psnOf(b) == psn
}

// take removes the packet psn and returns it, or nil.
func (e *early) take(psn uint32) []byte {
	if !e.has(psn) {
		return nil
	}
	slot := e.slot(psn)
	b := *slot
	e.drop(slot)
	return b
}

// clear drops all packets.
func (e *early) clear() {
	if e.total != nil {
		e.total.Add(-int64(e.bytes))
	}
	*e = early{total: e.total}
}
