package roce

import (
	"encoding/binary"
	mathbits "math/bits"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// Selective repeat, the requester's half: the peer keeps packets that arrive early, and
// only missing ones are retransmitted. The scoreboard finds them.

// openBoard opens the scoreboard if it is not. The packets in flight were then sent in the
// order of their PSNs, because nothing was retransmitted selectively. It reports false if the
// port has no memory for the scoreboard; probes then find the missing packets.
func (q selective) openBoard() bool {
	r := &q.req
	if r.board != nil {
		return true
	}
	if r.board = openScoreboard(r.una, r.high, &q.port.recovery); r.board == nil {
		return false
	}
	b := r.board
	psn := r.una
	for w := r.head; w != nil && psnDiff(psn, r.high) < 0; w = w.progress.next {
		for ; w.index(psn) < w.progress.count && psnDiff(psn, r.high) < 0; psn = psnAdd(psn, 1) {
			if i := w.index(psn); i == 0 || !w.hasResponses() {
				out, _ := q.cost(w, i, i+1)
				b.noteSent(psn, 1, out, r.rtt.sentAt(psn))
			} else {
				b.noteUnsent(psn)
			}
		}
	}
	return true
}

// closeBoard drops the scoreboard.
func (q *QP) closeBoard() {
	q.req.board.free(&q.port.recovery)
	q.req.board = nil
}

// passed removes packets [i, i+n) of w from the scoreboard, before una passes them, and
// returns their bytes that were in flight.
func (q *QP) passed(w *Work, i, n uint32, now int64) (out int64) {
	r := &q.req
	outstanding, rtt := psnDiff(r.high, r.una), r.rtt.witness(now)
	for ; n > 0; i, n = i+1, n-1 {
		out += r.board.pass(psnAdd(w.progress.first, int(i)), outstanding, rtt, now)
	}
	return out
}

// findOvertaken marks packets as missing that later packets have overtaken.
func (q selective) findOvertaken(now int64) {
	r := &q.req
	b := r.board
	if b == nil {
		return
	}
	if sample := b.measured(); sample != 0 && r.rtt.add(sample, now) {
		q.measured(sample, now)
	}
	// A PSN and a mark tell copies of responses. Those of requests are told by the mark of a SelectiveAck.
	r.reordering.arrived(0, 0, b.overtakers(), r.rtt.typical(), now)
	if !r.allSent() {
		return // go-back-N is in progress and resends everything
	}
	var out, packets int64
	for {
		bytes, ok := b.overtaken(r.reordering.most(b.flying))
		if !ok {
			break
		}
		out += bytes
		packets++
	}
	if packets > 0 {
		q.countLoss(packets)
		r.reordering = r.reordering.lose(packets)
		q.port.ready.push(q.peer.lost(&r.flight, out, packets, r.rtt.known(), now))
		r.rtt.cancel()
		r.mayBuild()
	}
	if b.idle(r.una) {
		q.closeBoard()
	}
}

// selectiveAck handles a SelectiveAck with the number of packets that arrived twice in its mark. It
// ignores bits of packets that were never sent.
func (q selective) selectiveAck(psn uint32, mark uint8, bits []byte, now int64) {
	r := &q.req
	q.port.n.SelectiveAcksReceived.Add(1)
	r.retries.peerExpects(psn, now)
	if q.state != rdma.StateRTS || psnDiff(psn, r.high) > 0 || psnDiff(psn, r.una) < -maxScoreboard {
		q.port.n.StaleResponses.Add(1)
		return
	}
	r.mayBuild()
	if markDiff(mark, r.duplicates) > 0 {
		r.duplicates = mark
		r.reordering.confirmed()
	}
	q.executed(psn)
	q.advance(psn, now)
	if r.head == nil || r.una == r.next || !r.allSent() || !q.openBoard() {
		return
	}
	var out, packets int64
	highest := r.una
	outstanding, rtt := psnDiff(r.high, r.una), r.rtt.witness(now)
	for at := 0; at < len(bits); at += 8 {
		first := psnAdd(psn, 1+8*at) // the packet of bit 0 of arrived
		arrived := word(bits[at:])
		if n := psnDiff(r.next, first); n <= 0 {
			break
		} else if n < 64 {
			arrived &= 1<<n - 1
		}
		if n := psnDiff(r.una, first); n > 0 {
			arrived = arrived >> min(n, 64) << min(n, 64)
		}
		if arrived == 0 {
			continue
		}
		highest = psnAdd(first, 63-mathbits.LeadingZeros64(arrived))
		for news := arrived &^ r.board.known(first); news != 0; news &= news - 1 {
			c, flew := r.board.noteArrived(psnAdd(first, mathbits.TrailingZeros64(news)), outstanding, rtt, now)
			out += c
			if flew && c > 0 {
				packets++
			}
		}
	}
	r.retries.sackArrived(highest, now)
	if out > 0 {
		q.port.ready.push(q.peer.reported(&r.flight, out, packets, r.rtt.known(), now))
	}
	q.findOvertaken(now)
}

// word returns up to 64 bits of the bitmap of a SelectiveAck.
func word(bits []byte) uint64 {
	if len(bits) < 8 {
		return uint64(binary.LittleEndian.Uint32(bits)) // the length is a multiple of 4
	}
	return binary.LittleEndian.Uint64(bits)
}

func (q selective) retransmit(b *builder, now, budget int64) (left int64, stop, more bool) {
	r := &q.req
	board := r.board
	psn, any := board.toResend(r.una)
	if !any {
		return budget, false, false
	}
	for w := r.head; w != nil && board.missing > 0 && psnDiff(psn, r.next) < 0; w = w.progress.next {
		if w.index(psn) >= w.progress.count {
			continue
		}
		for i := w.index(psn); i < w.progress.count && psnDiff(psn, r.next) < 0; i++ {
			if !board.isMissing(psn) {
				psn = psnAdd(psn, 1)
				continue
			}
			board.resentUpTo(psn)
			if budget <= 0 {
				return budget, true, true
			}
			out, _ := q.cost(w, i, i+1)
			if !q.mayNow(now, out) {
				return budget, true, false
			}
			if !q.putAgain(b, w, i, psn) {
				return budget, true, q.notPut(w)
			}
			board.noteResent(psn, now)
			q.peer.sent(&r.flight, out, 0)
			budget -= out + packetCost
			psn = psnAdd(psn, 1)
		}
	}
	board.resentUpTo(psn)
	return budget, false, false
}

// mayNow reports whether the window and pacing allow sending out bytes. If not, it makes
// the QP wait.
func (q selective) mayNow(now, out int64) bool {
	f := &q.req.flight
	return out == 0 || f.forced || q.peer.room(q.QP, out, 0, q.peer.out.limit.Load()) && q.peer.paced(f, out, q.req.rtt.typical(), now)
}

// putAgain adds packet i of w to b once more, with the acknowledge-request bit.
func (q selective) putAgain(b *builder, w *Work, i, psn uint32) bool {
	r := &q.req
	var ok bool
	switch {
	case w.Op == rdma.WRRead:
		r.reads.grantLost()
		ok = q.putRead(b, w, i, w.progress.count, psn, wire.GrantNone)
	case w.hasResponses():
		ok = q.putAtomic(b, w, psn)
	default:
		ok = q.putData(b, w, i, psn, 0)
	}
	if ok {
		n := uint32(1)
		if w.Op == rdma.WRRead {
			n = w.progress.count - i
		}
		q.sentAgain(w, psn, n)
	}
	return ok
}
