package roce

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/net/wire"
)

// maxScoreboard is the largest number of packets in flight, and so of scoreboard entries.
const maxScoreboard = 1 << 16

// States of a packet on the scoreboard.
const (
	flying  = iota // in flight
	arrived        // received by the peer
	missing        // lost: to be retransmitted
	unsent         // not a packet of its own (a PSN of a READ response), or dropped by the peer
)

// scoreboard finds lost packets for selective repeat. It has an entry for each packet from
// una to high, that is, for all packets that were sent and not acknowledged.
//
// The scoreboard is opened when the first loss is reported and dropped when no packet is
// missing, so paths without loss do not pay for it: it is nil then.
//
// A packet is considered lost when enough packets that were sent after it have arrived (see
// [reordering]). Every transmission, including a retransmission, has a number in the order of
// sending, so the rule covers both and needs no timer.
//
// A link with a long queue has thousands of packets in flight, and every few of them cause an
// acknowledgement. The work for one acknowledgement must therefore not grow with their number:
// the packets in flight form a list in the order of sending, whose first ones are the candidates
// for lost packets, and a bitmap shows which packets of a SelectiveAck are already known to have
// arrived.
type scoreboard struct {
	ring    []sent   // indexed with the PSN modulo the length, a power of two
	have    []uint64 // bit i is set if the packet of ring[i] is in state arrived
	flying  int      // number of packets in state flying
	first   uint32   // PSN of the packet in flight that was sent first; valid if flying is not 0
	last    uint32   // PSN of the packet in flight that was sent last; valid if flying is not 0
	order   uint32   // order of the last transmission
	fresh   uint32   // order of the last packet that was sent for the first time
	newest  uint32   // highest order of a packet that arrived
	proven  uint32   // order of the last probe that is known to have overtaken all packets before it; 0: none
	missing int      // number of packets in state missing
	arrived int      // number of packets in state arrived
	cursor  uint32   // no packet before this PSN is missing
	sample  int64    // round trip of the newest packet that arrived, or 0
	late    int      // smallest number of packets that overtook a packet which arrived soon after its retransmission; 0: there was none
}

// sent is the scoreboard's entry for one packet.
type sent struct {
	order  uint32
	former uint32 // order of its previous transmission, if again is set
	state  uint8
	again  bool   // retransmitted
	bytes  int32  // bytes that it occupies in the send window
	prev   uint32 // PSN of the packet in flight that was sent before this one
	next   uint32 // PSN of the packet in flight that was sent after this one
	at     int64  // time of the last transmission; 0: before the scoreboard existed
}

// sentBytes is the memory for one entry, with its bit in the bitmap.
const sentBytes = int(unsafe.Sizeof(sent{})) + 1

func (b *scoreboard) at(psn uint32) *sent { return &b.ring[int(psn)&(len(b.ring)-1)] }

// openScoreboard returns a scoreboard for packets [una, high). The caller then calls noteSent
// or noteUnsent for each of their PSNs. It returns nil if the port does not have the memory.
func openScoreboard(una, high uint32, mem *recoveryMemory) *scoreboard {
	b := &scoreboard{cursor: una}
	if !b.fit(psnDiff(high, una)+1, una, 0, mem) {
		return nil
	}
	return b
}

// free gives the memory of the scoreboard back. The caller drops the pointer.
func (b *scoreboard) free(mem *recoveryMemory) {
	if b != nil {
		mem.give(len(b.ring) * sentBytes)
	}
}

// fit grows the ring to n entries. It keeps the kept entries from PSN base on. It reports
// whether the port has the memory.
func (b *scoreboard) fit(n int, base uint32, kept int, mem *recoveryMemory) bool {
	if n <= len(b.ring) {
		return true
	}
	size := 256
	for size < n {
		size *= 2
	}
	if !mem.take(size * sentBytes) {
		return false
	}
	ring, have := make([]sent, size), make([]uint64, size/64)
	for i := range kept {
		psn := psnAdd(base, i)
		at := int(psn) & (size - 1)
		ring[at] = *b.at(psn)
		if ring[at].state == arrived {
			have[at/64] |= 1 << (at % 64)
		}
	}
	mem.give(len(b.ring) * sentBytes)
	b.ring, b.have = ring, have
	return true
}

// known returns a bitmap of 64 packets from PSN psn on: a bit is set if the packet has arrived.
func (b *scoreboard) known(psn uint32) uint64 {
	at := int(psn) & (len(b.ring) - 1)
	word, shift := at/64, at%64
	bits := b.have[word] >> shift
	if shift != 0 {
		bits |= b.have[(word+1)%len(b.have)] << (64 - shift)
	}
	return bits
}

// fly appends packet psn to the packets in flight, as the last one that was sent. land removes
// it from them.
func (b *scoreboard) fly(psn uint32, e *sent) {
	e.state = flying
	if e.prev = b.last; b.flying == 0 {
		b.first = psn
	} else {
		b.at(b.last).next = psn
	}
	b.last = psn
	b.flying++
}

func (b *scoreboard) land(psn uint32, e *sent) {
	if b.flying--; b.flying == 0 {
		return
	}
	switch psn {
	case b.first:
		b.first = e.next
	case b.last:
		b.last = e.prev
	default:
		b.at(e.prev).next, b.at(e.next).prev = e.next, e.prev
	}
}

// forget clears the bit of packet psn in the bitmap.
func (b *scoreboard) forget(psn uint32) {
	at := int(psn) & (len(b.ring) - 1)
	b.have[at/64] &^= 1 << (at % 64)
}

// room reports whether the scoreboard, if it is on, has room for a new packet after
// [una, high) that covers n PSNs.
func (b *scoreboard) room(una, high uint32, n int, mem *recoveryMemory) bool {
	kept := psnDiff(high, una)
	return b == nil || b.fit(kept+n+1, una, kept, mem)
}

// noteSent records that packet psn was sent for the first time, which covers n
// PSNs and occupies bytes in the send window. There is room for them. at is 0 if the time is
// not known.
func (b *scoreboard) noteSent(psn uint32, n int, bytes, at int64) {
	if b == nil {
		return
	}
	b.order++
	b.fresh = b.order
	e := b.at(psn)
	*e = sent{order: b.order, bytes: int32(bytes), at: at}
	b.forget(psn)
	b.fly(psn, e)
	for i := 1; i < n; i++ {
		b.noteUnsent(psnAdd(psn, i))
	}
}

// noteUnsent records that PSN psn is that of a later response of a READ, not of a packet.
func (b *scoreboard) noteUnsent(psn uint32) {
	*b.at(psn) = sent{order: b.order, state: unsent}
	b.forget(psn)
}

// noteResent records that packet psn, which was missing, was sent again.
func (b *scoreboard) noteResent(psn uint32, now int64) {
	b.missing--
	b.sentAgain(psn, now)
}

func (b *scoreboard) sentAgain(psn uint32, now int64) {
	b.order++
	e := b.at(psn)
	*e = sent{order: b.order, former: e.order, again: true, bytes: e.bytes, at: now}
	b.fly(psn, e)
}

// noteProbe enters a probe of packet psn in the order of sending. Its acknowledgement then
// shows which packets before it were lost. It reports whether the packet was not in flight.
func (b *scoreboard) noteProbe(psn uint32, now int64) (landed bool) {
	e := b.at(psn)
	landed = e.state != flying
	switch e.state {
	case missing:
		b.missing--
	case arrived:
		b.arrived--
		b.forget(psn)
	case flying:
		b.land(psn, e)
	}
	b.sentAgain(psn, now)
	return landed
}

// noteArrived records that the peer has packet psn. It returns the bytes that the packet still
// occupied in the send window, and whether it counted as in flight. outstanding is the number of PSNs in flight.
//
// The arrived copy of a retransmitted packet may be the first one. It then says nothing about
// the packets that were sent between the two copies. Packets that were sent for the first time
// after the retransmission are better witnesses. If there are none, or if the peer cannot report
// them because too many packets are in flight, an arrival about a round trip after the
// retransmission counts as its own.
func (b *scoreboard) noteArrived(psn uint32, outstanding int, rtt, now int64) (bytes int64, flew bool) {
	e := b.at(psn)
	switch e.state {
	case flying:
		bytes, flew = int64(e.bytes), true
		b.land(psn, e)
		if by := int(int32(b.newest - e.former)); e.again && now-e.at < rtt/2 && by > 0 && (b.late == 0 || by < b.late) {
			b.late = by
		}
	case missing:
		b.missing--
	default:
		return 0, false
	}
	e.state = arrived
	b.arrived++
	at := int(psn) & (len(b.ring) - 1)
	b.have[at/64] |= 1 << (at % 64)
	noWitness := int32(e.order-b.fresh) > 0 || outstanding > wire.MaxSelectiveAck
	if int32(e.order-b.newest) > 0 && (!e.again || noWitness && now-e.at >= rtt*3/4) {
		b.newest = e.order
		if !e.again && e.at != 0 {
			b.sample = now - e.at
		}
	}
	return bytes, flew
}

// pass removes packet psn before una passes it. It returns the bytes that it still occupied in
// the send window.
func (b *scoreboard) pass(psn uint32, outstanding int, rtt, now int64) (bytes int64) {
	bytes, _ = b.noteArrived(psn, outstanding, rtt, now)
	if b.at(psn).state == arrived {
		b.arrived--
	}
	return bytes
}

// overtakenBy records that probe psn, which una has just passed, is known to have overtaken all
// packets that were sent before it.
func (b *scoreboard) overtakenBy(psn uint32) {
	if e := b.at(psn); e.again && int32(e.order-b.newest) > 0 {
		b.newest, b.proven = e.order, e.order
	}
}

// measured returns the round trip of the newest packet that arrived since the last call, or 0.
func (b *scoreboard) measured() (sample int64) {
	sample, b.sample = b.sample, 0
	return sample
}

// overtakers returns the smallest number of packets that overtook one before it arrived, of those that
// arrived since the last call and sooner than half a round trip after they were sent again: the copy
// that arrived may be the first one. It returns 0 if there are none.
func (b *scoreboard) overtakers() (n int) {
	n, b.late = b.late, 0
	return n
}

// overtaken marks a packet as missing that most or more later packets have overtaken. It returns the
// bytes that the packet occupied in the send window, and false if there is no such packet.
func (b *scoreboard) overtaken(most int) (bytes int64, ok bool) {
	if b.flying == 0 {
		return 0, false
	}
	psn := b.first
	e := b.at(psn)
	if int(int32(b.newest-e.order)) < most && int32(b.proven-e.order) < reorderPackets {
		return 0, false
	}
	b.land(psn, e)
	e.state = missing
	b.missing++
	if psnDiff(psn, b.cursor) < 0 {
		b.cursor = psn
	}
	return int64(e.bytes), true
}

// idle reports whether nothing before una is left to do.
func (b *scoreboard) idle(una uint32) bool {
	return b.missing == 0 && b.arrived == 0 && psnDiff(una, b.cursor) > 0
}

// toResend returns the PSN from which on packets may be missing, at least una, and whether
// any are.
func (b *scoreboard) toResend(una uint32) (psn uint32, any bool) {
	if b == nil || b.missing == 0 {
		return 0, false
	}
	if psnDiff(b.cursor, una) < 0 {
		return una, true
	}
	return b.cursor, true
}

// isMissing reports whether packet psn is to be sent again. resentUpTo records that no packet
// before psn is.
func (b *scoreboard) isMissing(psn uint32) bool { return b.at(psn).state == missing }
func (b *scoreboard) resentUpTo(psn uint32)     { b.cursor = psn }
