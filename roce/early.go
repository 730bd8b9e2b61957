package roce

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Limits on the memory for packets that arrive while earlier ones are missing.
const (
	maxEarly         = 1 << 14  // distance in PSNs from the expected packet
	maxEarlyBytes    = 16 << 20 // bytes in one direction of a QP
	maxRecoveryBytes = 64 << 20 // bytes on a port
)

// recoveryMemory counts the bytes that all QPs of a port have allocated because
// packets were lost: early packets with the structures that hold them, and the
// records of what was sent and asked for. The count is of allocated bytes
// rather than of payload, because a peer chooses which packets arrive.
type recoveryMemory struct{ used atomic.Int64 }

// take counts n more bytes, and reports whether the port may allocate them.
func (m *recoveryMemory) take(n int) bool {
	if m.used.Add(int64(n)) > maxRecoveryBytes {
		m.used.Add(-int64(n))
		return false
	}
	return true
}

// give removes n bytes that were freed.
func (m *recoveryMemory) give(n int) { m.used.Add(-int64(n)) }

// early is a reorder buffer: it keeps packets that arrive before the expected one. A
// responder keeps requests, a requester keeps responses. The buffer is limited per QP and
// per port. A packet above the limit is dropped and retransmitted by the peer.
//
// The packets are in a ring of maxEarly slots. Its pages are allocated when they are used,
// so that a packet far after the expected one costs little, and an empty buffer nothing.
type early struct{ *earlyRing } // nil if the buffer is empty

// earlyRing is an early that is not empty.
type earlyRing struct {
	pages [maxEarly / earlyPageLen]earlyPage
	count int
	bytes int             // allocated, for the ring and the packets
	mem   *recoveryMemory // the port's limit on memory for recovery
}

// earlyPage is a page of the ring. Packet psn is in page psn/earlyPageLen.
type earlyPage struct {
	slots *[earlyPageLen][]byte
	count int
	have  [earlyPageLen / 32]uint32 // bit i is set if slot i holds a packet
}

// Go's allocator adds a header of 8 bytes and rounds the size up by at most an
// eighth.
const (
	earlyPageLen   = 128
	earlyPageBytes = earlyPageLen*int(unsafe.Sizeof([]byte{}))*9/8 + 8
	earlyRingBytes = int(unsafe.Sizeof(earlyRing{}))*9/8 + 8
)

// put keeps a copy of packet b, whose PSN is d after the expected one. It reports whether
// the buffer holds the packet, which it may have held before. mem is the port's limit.
func (e *early) put(psn uint32, d int, b []byte, mem *recoveryMemory) bool {
	if d >= maxEarly {
		return false
	}
	if e.earlyRing == nil {
		if !mem.take(earlyRingBytes) {
			return false
		}
		e.earlyRing = &earlyRing{mem: mem, bytes: earlyRingBytes}
	}
	if e.bytes+len(b) > maxEarlyBytes {
		return false
	}
	p := e.page(psn)
	if p.slots == nil {
		if !e.take(earlyPageBytes) {
			e.trim(p)
			return false
		}
		p.slots = new([earlyPageLen][]byte)
	}
	slot := &p.slots[psn%earlyPageLen]
	if *slot != nil {
		if psnOf(*slot) == psn {
			return true
		}
		e.drop(p, psn) // a stale packet: the expected PSN has passed it
	}
	if !e.take(len(b)) {
		e.trim(p)
		return false
	}
	*slot = append([]byte(nil), b...)
	rounded := cap(*slot) - len(b) // the allocator rounds up
	e.bytes += rounded
	e.mem.used.Add(int64(rounded))
	e.count++
	p.count++
	p.have[psn%earlyPageLen/32] |= 1 << (psn % 32)
	return true
}

// bits returns a bitmap of 32 packets from PSN psn on: a bit is set if the buffer holds a
// packet in the slot of that PSN.
func (e *early) bits(psn uint32) uint32 {
	if e.len() == 0 {
		return 0
	}
	bits := e.page(psn).have[psn%earlyPageLen/32]
	shift := psn % 32
	if bits >>= shift; shift != 0 {
		psn = psnAdd(psn, 32)
		bits |= e.page(psn).have[psn%earlyPageLen/32] << (32 - shift)
	}
	return bits
}

// take counts n bytes before they are allocated, and reports whether the limits
// permit it.
func (e *earlyRing) take(n int) bool {
	if !e.mem.take(n) {
		return false
	}
	e.bytes += n
	return true
}

func (e *earlyRing) give(n int) {
	e.bytes -= n
	e.mem.give(n)
}

// psnOf returns the PSN of a packet.
func psnOf(b []byte) uint32 { return binary.BigEndian.Uint32(b[8:]) & psnMask }

// page returns the page for a PSN.
func (e *earlyRing) page(psn uint32) *earlyPage {
	return &e.pages[psn/earlyPageLen%uint32(len(e.pages))]
}

// drop empties the slot of PSN psn in page p.
func (e *earlyRing) drop(p *earlyPage, psn uint32) {
	slot := &p.slots[psn%earlyPageLen]
	e.give(cap(*slot))
	p.have[psn%earlyPageLen/32] &^= 1 << (psn % 32)
	*slot = nil
	e.count--
	p.count--
}

// trim frees page p if it is empty, and the ring with its last packet.
func (e *early) trim(p *earlyPage) {
	if p.count == 0 && p.slots != nil {
		p.slots = nil
		e.give(earlyPageBytes)
	}
	if e.count == 0 {
		e.clear()
	}
}

// len returns the number of packets in the buffer.
func (e *early) len() int {
	if e.earlyRing == nil {
		return 0
	}
	return e.count
}

// has reports whether the buffer holds packet psn.
func (e *early) has(psn uint32) bool {
	if e.len() == 0 {
		return false
	}
	p := e.page(psn)
	if p.slots == nil {
		return false
	}
	b := p.slots[psn%earlyPageLen]
	return b != nil && psnOf(b) == psn
}

// remove removes and returns packet psn, or returns nil if the buffer does not hold it. The
// packet's memory is the caller's from then on: the buffer never uses it for another packet,
// because a Sink may hold slices of it until EndBatch.
func (e *early) remove(psn uint32) []byte {
	if !e.has(psn) {
		return nil
	}
	p := e.page(psn)
	b := p.slots[psn%earlyPageLen]
	e.drop(p, psn)
	e.trim(p)
	return b
}

// clear drops all packets.
func (e *early) clear() {
	if e.earlyRing != nil {
		e.mem.give(e.bytes)
		e.earlyRing = nil
	}
}
