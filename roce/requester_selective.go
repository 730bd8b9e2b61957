package roce

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// Selective repeat, the requester's half: the peer keeps packets that arrive early, and
// only missing ones are retransmitted.
//
// The scoreboard is created when the first loss is reported and dropped when no packet is
// missing, so paths without loss do not pay for it.
//
// A packet is considered lost when reorderPackets packets that were sent after it have
// arrived. Every transmission, including a retransmission, has a number in the order of
// sending, so the rule covers both and needs no timer.

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

// scoreboard has an entry for each packet from una to high.
type scoreboard struct {
	on      bool
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

func (b *scoreboard) at(psn uint32) *sent { return &b.ring[int(psn)&(len(b.ring)-1)] }

// board returns the scoreboard, and creates it if needed. The packets in flight were then
// sent in the order of their PSNs, because nothing was retransmitted selectively. It returns
// nil if the port has no memory for the scoreboard; probes then find the missing packets.
func (q *QP) board() *scoreboard {
	r := &q.req
	b := &r.board
	n := psnDiff(r.high, r.una)
	if !b.on {
		if !b.fit(n+1, r.una, 0, &q.port.recovery) {
			return nil
		}
		*b = scoreboard{on: true, ring: b.ring, cursor: r.una}
		psn := r.una
		for w := r.head; w != nil && psnDiff(psn, r.high) < 0; w = w.progress.next {
			for i := range w.progress.count {
				p := psnAdd(w.progress.first, int(i))
				if psnDiff(p, psn) < 0 || psnDiff(p, r.high) >= 0 {
					continue
				}
				b.order++
				b.fresh = b.order
				*b.at(p) = sent{order: b.order, state: flying}
				if w.answered() && i > 0 {
					b.at(p).state = unsent
				}
			}
		}
	}
	return b
}

// drop ends the use of the scoreboard and frees it.
func (b *scoreboard) drop(mem *recoveryMemory) {
	mem.give(len(b.ring) * sentBytes)
	b.on, b.ring = false, nil
}

const sentBytes = int(unsafe.Sizeof(sent{}))

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

// roomOnBoard reports whether the scoreboard, if there is one, has room for a new packet that
// covers n PSNs. The QP sends no new packets without it.
func (q *QP) roomOnBoard(n int) bool {
	r := &q.req
	b := &r.board
	kept := psnDiff(r.high, r.una)
	return !b.on || b.fit(kept+n+1, r.una, kept, &q.port.recovery)
}

// noteSent records that packet psn was sent, which covers n PSNs.
func (q *QP) noteSent(psn uint32, n int, now int64) {
	b := &q.req.board
	if !b.on {
		return
	}
	b.order++
	b.fresh = b.order
	*b.at(psn) = sent{order: b.order, state: flying, at: now}
	for i := 1; i < n; i++ {
		*b.at(psnAdd(psn, i)) = sent{order: b.order, state: unsent}
	}
}

// noteArrived records that the peer has packet psn, which is packet i of w. It returns
// the packet's bytes if they were still counted as in flight.
//
// The arrived copy of a retransmitted packet may be the first one. It then says nothing about
// the packets that were sent between the two copies. Packets that were sent for the first time
// after the retransmission are better witnesses. If there are none, or if the peer cannot report
// them because too many packets are in flight, an arrival about a round trip after the
// retransmission counts as its own.
func (q *QP) noteArrived(b *scoreboard, psn uint32, w *Work, i uint32, now int64) (out int64) {
	r := &q.req
	e := b.at(psn)
	switch e.state {
	case flying:
		out, _ = q.cost(w, i, i+1)
	case missing:
		b.missing--
	default:
		return 0
	}
	e.state = arrived
	b.arrived++
	noWitness := int32(e.order-b.fresh) > 0 || psnDiff(r.high, r.una) > wire.MaxSelectiveAck
	if int32(e.order-b.newest) > 0 && (!e.again || noWitness && now-e.at >= r.roundTrip()*3/4) {
		b.newest = e.order
		if !e.again && e.at != 0 {
			b.sample = now - e.at
		}
	}
	return out
}

// passed removes packets [i, i+n) of w from the scoreboard, before una passes them, and
// returns their bytes that were in flight.
func (q *QP) passed(b *scoreboard, w *Work, i, n uint32, now int64) (out int64) {
	for ; n > 0; i, n = i+1, n-1 {
		psn := psnAdd(w.progress.first, int(i))
		out += q.noteArrived(b, psn, w, i, now)
		if e := b.at(psn); e.state == arrived {
			b.arrived--
		}
	}
	return out
}

// findLost marks packets as missing that later packets have overtaken.
func (q *QP) findLost(now int64) {
	r := &q.req
	b := &r.board
	if !b.on || b.newest == b.checked {
		return
	}
	b.checked = b.newest
	if b.sample != 0 {
		r.rtt.add(b.sample)
		b.sample = 0
	}
	if r.tx != r.high {
		return // go-back-N is in progress and resends everything
	}
	var out, packets int64
	psn := r.una
	for w := r.head; w != nil && psnDiff(psn, r.tx) < 0; w = w.progress.next {
		for i := w.index(psn); i < w.progress.count && psnDiff(psn, r.tx) < 0; i++ {
			e := b.at(psn)
			if e.state == flying && int32(b.newest-e.order) >= reorderPackets {
				c, _ := q.cost(w, i, i+1)
				if w.Op == OpRead {
					c = 0
				}
				out += c
				packets++
				e.state = missing
				b.missing++
				if psnDiff(psn, b.cursor) < 0 {
					b.cursor = psn
				}
			}
			psn = psnAdd(psn, 1)
		}
	}
	if packets > 0 {
		q.port.n.Losses.Add(1)
		q.port.n.LostPackets.Add(uint64(packets))
		q.peer.out.cut(now, r.roundTrip(), packets)
		r.out -= out
		q.port.ready.push(q.peer.out.give(out))
		r.rttStart = 0
		r.again = true
	}
	if b.missing == 0 && b.arrived == 0 && psnDiff(r.una, b.cursor) > 0 {
		b.drop(&q.port.recovery)
	}
}

// selectiveAck handles a SelectiveAck. It ignores bits of packets that were never sent.
func (q *QP) selectiveAck(psn uint32, bits []byte, now int64) {
	r := &q.req
	q.port.n.SelectiveAcksReceived.Add(1)
	r.answer = answer{at: now, psn: psn}
	if q.state != StateRTS || psnDiff(psn, r.high) > 0 || psnDiff(psn, r.una) < -maxScoreboard {
		q.port.n.StaleResponses.Add(1)
		return
	}
	r.again = true
	q.executed(psn)
	q.advance(psn, now)
	if r.head == nil || r.una == r.tx || r.tx != r.high {
		return
	}
	b := q.board()
	if b == nil {
		return
	}
	var out, packets int64
	w := r.head
	// A SelectiveAck of packets after all that were reported before is evidence of
	// progress. There are only as many as packets in flight, even if una is never executed.
	highest := r.sackHigh
	for i := range 8 * len(bits) {
		if bits[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		p := psnAdd(psn, 1+i)
		if psnDiff(p, r.tx) >= 0 {
			break
		}
		if psnDiff(p, r.una) < 0 {
			continue
		}
		for w != nil && w.index(p) >= w.progress.count {
			w = w.progress.next
		}
		if w == nil {
			break
		}
		if psnDiff(p, highest) > 0 {
			highest = p
		}
		if n := q.noteArrived(b, p, w, w.index(p), now); n > 0 {
			packets++
			if w.Op != OpRead {
				out += n
			}
		}
	}
	if highest != r.sackHigh {
		r.sackHigh = highest
		q.renew(now)
	}
	if out > 0 {
		r.out -= out
		q.peer.out.grow(now, r.roundTrip(), out, packets)
		q.port.ready.push(q.peer.out.give(out))
	}
	q.findLost(now)
}

// executed records that the peer has executed every request before psn.
func (q *QP) executed(psn uint32) {
	if psnDiff(psn, q.req.done) > 0 {
		q.req.done = psn
	}
}

// buildMissing retransmits missing packets. stop means that nothing else can be sent in
// this turn; more means that the QP needs another turn.
func (q *QP) buildMissing(b *builder, now int64, budget *int64) (stop, more bool) {
	r := &q.req
	board := &r.board
	if !board.on || board.missing == 0 {
		return false, false
	}
	psn := board.cursor
	if psnDiff(psn, r.una) < 0 {
		psn = r.una
	}
	for w := r.head; w != nil && board.missing > 0 && psnDiff(psn, r.tx) < 0; w = w.progress.next {
		if w.index(psn) >= w.progress.count {
			continue
		}
		for i := w.index(psn); i < w.progress.count && psnDiff(psn, r.tx) < 0; i++ {
			if board.at(psn).state != missing {
				psn = psnAdd(psn, 1)
				continue
			}
			board.cursor = psn
			if *budget <= 0 {
				return true, true
			}
			out, _ := q.cost(w, i, i+1)
			if w.Op == OpRead {
				out = 0
			}
			if !q.mayNow(now, out) {
				return true, false
			}
			if !q.putAgain(b, w, i, psn) {
				return true, q.notPut(w)
			}
			board.missing--
			board.order++
			*board.at(psn) = sent{order: board.order, state: flying, again: true, at: now}
			q.peer.out.used.Add(out)
			r.out += out
			*budget -= out + packetCost
			psn = psnAdd(psn, 1)
		}
	}
	board.cursor = psn
	return false, false
}

// probeOnBoard enters the probe of una, packet i of w, in the order of sending. Its
// acknowledgement then shows which packets before it were lost.
func (q *QP) probeOnBoard(w *Work, i uint32, now int64) {
	r := &q.req
	b := &r.board
	e := b.at(r.una)
	if e.state != flying {
		switch e.state {
		case missing:
			b.missing--
		case arrived:
			b.arrived--
		}
		out, _ := q.cost(w, i, i+1)
		q.peer.out.used.Add(out)
		r.out += out
	}
	b.order++
	*e = sent{order: b.order, state: flying, again: true, at: now}
}

// mayNow reports whether the window and pacing allow sending out bytes. If not, it makes
// the QP wait.
func (q *QP) mayNow(now, out int64) bool {
	r := &q.req
	if out == 0 || r.probe {
		return true
	}
	if !q.room(out, 0, q.peer.out.limit.Load()) {
		r.blocked = true
		return false
	}
	return q.paced(now, out)
}

// putAgain adds packet i of w to b once more, with the acknowledge-request bit.
func (q *QP) putAgain(b *builder, w *Work, i, psn uint32) bool {
	r := &q.req
	var ok bool
	switch {
	case w.Op == OpRead:
		var mark uint8
		if q.recv.Selective {
			mark, r.regrant = wire.GrantNone, true
		}
		ok = q.putRead(b, w, i, w.progress.count, psn, mark)
	case w.answered():
		ok = q.putAtomic(b, w, psn)
	default:
		ok = q.putData(b, w, i, psn, 0)
	}
	if ok {
		r.repeated = r.repeated || w.answered()
		r.tried(psn)
		n := uint32(1)
		if w.Op == OpRead {
			n = w.progress.count - i
		}
		q.noteAgain(w, psn, n)
	}
	return ok
}
