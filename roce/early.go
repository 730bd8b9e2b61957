package roce

import (
	"encoding/binary"
	"sync/atomic"
)

// Limits on the packets that a QP keeps while earlier ones are missing.
const (
	maxEarly       = 1 << 14  // PSNs after the expected packet
	maxEarlyBytes  = 16 << 20 // bytes in one direction of a QP
	portEarlyBytes = 64 << 20 // bytes on a port
)

// early is a reorder buffer: it keeps packets that arrive before the expected one. A
// responder keeps requests, a requester keeps responses. The buffer is limited per QP and
// per port. A packet above the limit is dropped and retransmitted by the peer.
type early struct {
	ring  [][]byte // indexed with the PSN modulo the length, a power of two; nil: not kept
	count int
	bytes int
	total *atomic.Int64 // bytes kept by all QPs of the port
}

// put keeps a copy of packet b, whose PSN is d after the expected one. It reports whether
// the buffer holds the packet, which it may have held before.
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
		e.drop(slot) // a stale packet: the expected PSN has passed it
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

// slot returns the ring entry for a PSN.
func (e *early) slot(psn uint32) *[]byte { return &e.ring[int(psn)&(len(e.ring)-1)] }

// drop empties a slot.
func (e *early) drop(slot *[]byte) {
	n := len(*slot)
	*slot = nil
	e.count--
	e.bytes -= n
	e.total.Add(-int64(n))
}

// grow resizes the ring for n packets. base is the expected PSN; packets before it are
// dropped.
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

// has reports whether the buffer holds packet psn.
func (e *early) has(psn uint32) bool {
	if e.count == 0 {
		return false
	}
	b := *e.slot(psn)
	return b != nil && psnOf(b) == psn
}

// take removes and returns packet psn, or returns nil if the buffer does not hold it.
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
