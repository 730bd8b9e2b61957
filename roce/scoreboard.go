package roce

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// reorderPackets is the number of later packets that must overtake a packet before it
// counts as lost.
const reorderPackets = 3

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
// A packet is considered lost when reorderPackets packets that were sent after it have
// arrived. Every transmission, including a retransmission, has a number in the order of
// sending, so the rule covers both and needs no timer.
type scoreboard struct {
	ring    []sent // indexed with the PSN modulo the length, a power of two
	order   uint32 // order of the last transmission
	fresh   uint32 // order of the last packet that was sent for the first time
	newest  uint32 // highest order of a packet that arrived
	checked uint32 // value of newest at the last search for losses
	missing int    // number of packets in state missing
	arrived int
	cursor  uint32 // no packet before this PSN is missing
	sample  int64  // round trip of the newest packet that arrived, or 0
}

// sent is the scoreboard's entry for one packet.
type sent struct {
	order uint32
	state uint8
	again bool  // retransmitted
	at    int64 // time of the last transmission; 0: before the scoreboard existed
}

const sentBytes = int(unsafe.Sizeof(sent{}))

func (b *scoreboard) at(psn uint32) *sent { return &b.ring[int(psn)&(len(b.ring)-1)] }

// openScoreboard returns a scoreboard for packets [una, high). The caller then calls noteEarlier
// for each of their PSNs. It returns nil if the port does not have the memory.
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
	ring := make([]sent, size)
	for i := range kept {
		psn := psnAdd(base, i)
		ring[int(psn)&(size-1)] = *b.at(psn)
	}
	mem.give(len(b.ring) * sentBytes)
	b.ring = ring
	return true
}

// room reports whether the scoreboard, if it is on, has room for a new packet after
// [una, high) that covers n PSNs.
func (b *scoreboard) room(una, high uint32, n int, mem *recoveryMemory) bool {
	kept := psnDiff(high, una)
	return b == nil || b.fit(kept+n+1, una, kept, mem)
}

// noteSent records that packet psn was sent for the first time, which covers n
// PSNs. There is room for them. at is 0 if the time is not known.
func (b *scoreboard) noteSent(psn uint32, n int, at int64) {
	if b == nil {
		return
	}
	b.order++
	b.fresh = b.order
	*b.at(psn) = sent{order: b.order, state: flying, at: at}
	for i := 1; i < n; i++ {
		*b.at(psnAdd(psn, i)) = sent{order: b.order, state: unsent}
	}
}

// noteEarlier records that PSN psn was sent before the scoreboard was opened. own means that
// it is a packet, and not that of a later response of a READ.
func (b *scoreboard) noteEarlier(psn uint32, own bool) {
	b.noteSent(psn, 1, 0)
	if !own {
		b.at(psn).state = unsent
	}
}

// noteResent records that packet psn, which was missing, was sent again.
func (b *scoreboard) noteResent(psn uint32, now int64) {
	b.missing--
	b.order++
	*b.at(psn) = sent{order: b.order, state: flying, again: true, at: now}
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
	}
	b.order++
	*e = sent{order: b.order, state: flying, again: true, at: now}
	return landed
}

// noteArrived records that the peer has packet psn. It reports whether the packet still
// counted as in flight. outstanding is the number of PSNs in flight.
//
// The arrived copy of a retransmitted packet may be the first one. It then says nothing about
// the packets that were sent between the two copies. Packets that were sent for the first time
// after the retransmission are better witnesses. If there are none, or if the peer cannot report
// them because too many packets are in flight, an arrival about a round trip after the
// retransmission counts as its own.
func (b *scoreboard) noteArrived(psn uint32, outstanding int, rtt, now int64) (flew bool) {
	e := b.at(psn)
	switch e.state {
	case flying:
		flew = true
	case missing:
		b.missing--
	default:
		return false
	}
	e.state = arrived
	b.arrived++
	noWitness := int32(e.order-b.fresh) > 0 || outstanding > wire.MaxSelectiveAck
	if int32(e.order-b.newest) > 0 && (!e.again || noWitness && now-e.at >= rtt*3/4) {
		b.newest = e.order
		if !e.again && e.at != 0 {
			b.sample = now - e.at
		}
	}
	return flew
}

// pass removes packet psn before una passes it. It reports whether it was in flight.
func (b *scoreboard) pass(psn uint32, outstanding int, rtt, now int64) (flew bool) {
	flew = b.noteArrived(psn, outstanding, rtt, now)
	if b.at(psn).state == arrived {
		b.arrived--
	}
	return flew
}

// news reports whether packets arrived since the last call that may show losses, and
// returns the round trip of the newest one, or 0.
func (b *scoreboard) news() (sample int64, ok bool) {
	if b == nil || b.newest == b.checked {
		return 0, false
	}
	b.checked = b.newest
	sample, b.sample = b.sample, 0
	return sample, true
}

// overtaken marks packet psn as missing if enough later packets have overtaken it, and
// reports whether it did.
func (b *scoreboard) overtaken(psn uint32) bool {
	e := b.at(psn)
	if e.state != flying || int32(b.newest-e.order) < reorderPackets {
		return false
	}
	e.state = missing
	b.missing++
	if psnDiff(psn, b.cursor) < 0 {
		b.cursor = psn
	}
	return true
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
