package roce

import (
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// Selective repeat of READ and atomic responses, the requester's half: the requester asks for
// missing responses, and grants responses as the window has room.

// findGaps finds the responses to ask for: those that are missing while later ones have
// arrived. Those that an earlier RepeatResponses asks for are not among them until the peer has answered it.
func (q selective) findGaps(now int64) {
	r := &q.req
	if q.state != rdma.StateRTS {
		return
	}
	if r.head == nil || psnDiff(r.reads.high, r.una) <= 0 {
		if r.reads.wanted != nil && r.reads.asks != nil && !r.reads.probing {
			r.reads.dropAsks(&q.port.recovery)
		}
		return
	}
	if from, to := r.reads.toScan(r.una); from != to {
		r.reads.scanned = q.askForMissing(from, to, false, now)
	}
}

// askForMissing adds the missing responses in [from, to) to those that are asked for, and
// returns the PSN at which it stopped. If all is set, it includes responses that were asked
// for before and may still arrive.
func (q selective) askForMissing(from, to uint32, all bool, now int64) uint32 {
	r := &q.req
	if psnDiff(to, r.una) > maxEarly {
		to = psnAdd(r.una, maxEarly) // the early buffer holds no responses after that
	}
	remember := r.reads.fitAsks(r.una, psnDiff(to, r.una), &q.port.recovery)
	if !remember && !all {
		return from // only probes ask then
	}
	var lost int64
	for w := r.head; w != nil && psnDiff(w.progress.first, to) < 0; w = w.progress.next {
		if !w.hasResponses() {
			continue
		}
		end := psnAdd(w.progress.first, int(w.progress.count))
		if psnDiff(end, to) > 0 {
			end = to
		}
		if psnDiff(from, w.progress.first) < 0 {
			from = w.progress.first
		}
		if psnDiff(from, end) >= 0 {
			continue
		}
		next, n := r.reads.scan(from, end, all, remember)
		lost += n
		if from = next; next != end {
			to = next // the list is full: the next call continues here
			break
		}
	}
	if lost > 0 {
		r.reads.useMark()
		r.rtt.requestedAgain()
		r.mayBuild()
		if !all {
			q.countLoss(lost)
			r.reads.reordering = r.reads.reordering.lose(lost)
			q.peer.in.cut(now, r.rtt.known(), lost)
		}
	}
	return to
}

// roomFor returns the number of responses for which the read window has room, and the
// number that the whole window holds.
func (q selective) roomFor() (room, all int64) {
	in := &q.peer.in
	size := q.fullCost()
	limit, used := in.limit.Load(), in.used.Load()
	if room = (limit - used) / size; room <= 0 && used <= 0 {
		room = 1
	}
	return max(room, 0), limit / size
}

// firstGrant returns the number of responses, from response i of READ w on, that its
// request grants.
func (q selective) firstGrant(w *Work, i uint32) uint32 {
	r := &q.req
	if r.reads.ungranted() && r.inFlight > 0 {
		return 0 // earlier READs have the room first
	}
	room, _ := q.roomFor()
	left := int64(w.progress.count - i)
	if room >= left {
		return uint32(left)
	}
	return uint32(min(room/wire.GrantUnit, wire.GrantNone-1) * wire.GrantUnit)
}

// grantMark encodes the grant of a READ request of count responses as the mark in its
// BTH.
func grantMark(grant, count uint32) uint8 {
	switch {
	case grant == count:
		return 0
	case grant == 0:
		return wire.GrantNone
	}
	return uint8(grant / wire.GrantUnit)
}

// grantOf is the inverse of grantMark: the number of responses that a mark grants, of count.
func grantOf(mark uint8, count uint32) uint32 {
	switch mark {
	case 0:
		return count
	case wire.GrantNone:
		return 0
	}
	return min(count, wire.GrantUnit*uint32(mark))
}

// grantMore grants responses for which the window has room. It reports whether to send a
// RepeatResponses for that.
func (q selective) grantMore(now int64) bool {
	r := &q.req
	send := r.reads.regrant
	room, all := q.roomFor()
	if !r.reads.mayGrant(r.una, room, all) && r.flight.in == 0 && r.reads.ungranted() &&
		!q.peer.in.wait(q.QP, r.reads.leastGrant(all)*q.fullCost(), &q.waitsIn) {
		room, all = q.roomFor() // others have left room meanwhile
	}
	if r.reads.mayGrant(r.una, room, all) {
		r.rtt.measure(r.reads.granted, now)
		for w := r.head; w != nil && room > 0 && psnDiff(w.progress.first, r.reads.grantEnd) < 0; w = w.progress.next {
			if w.Op != rdma.WRRead {
				continue
			}
			from := max(0, psnDiff(r.reads.granted, w.progress.first))
			n := min(int64(w.progress.count)-int64(from), room)
			if n <= 0 {
				continue
			}
			_, in := q.cost(w, uint32(from), uint32(from)+uint32(n))
			q.peer.sent(&r.flight, 0, in)
			room -= n
			r.reads.grantUpTo(psnAdd(w.progress.first, from+int(n)))
			send = true
		}
	}
	return send
}

// grantOne grants the next response of READ w although the window has no room for it. Other queue pairs may fill the
// window for long, as one that waits for a lost packet. The READ goes on meanwhile, and its retries are not used up.
func (q selective) grantOne(w *Work) {
	r := &q.req
	i := w.index(r.una)
	_, in := q.cost(w, i, i+1)
	q.peer.sent(&r.flight, 0, in)
	r.reads.grantUpTo(psnAdd(r.una, 1))
}

// putAsks adds a RepeatResponses to b if there is something to grant or to ask for. It reports
// whether the trains had room.
func (q selective) putAsks(b *builder, now int64) bool {
	granted := q.grantMore(now)
	if !granted && !q.req.reads.asking() || q.putRepeatResponses(b) {
		return true
	}
	if granted {
		q.req.reads.grantLost()
	}
	return false
}

// putRepeatResponses adds a RepeatResponses with the grant and the missing responses to b.
func (q selective) putRepeatResponses(b *builder) bool {
	r := &q.req
	m := r.reads.wanted
	again := m != nil && len(m.missing) > 0 && m.missing[0].First == r.una
	spans := r.reads.spans(r.una)
	size := wire.BTHLen + len(spans)*wire.SpanLen + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	if again {
		r.retries.tried()
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: wire.RepeatResponses, MigReq: true, PKey: wire.DefaultPKey, DestQP: q.recv.DestQPN, PSN: r.reads.granted, Mark: r.reads.askMark,
	})
	for i := range spans {
		wire.PutSpan(p[wire.BTHLen+i*wire.SpanLen:], &spans[i])
		r.retries.owe(spans[i].Count)
	}
	q.finish(p, id)
	r.reads.spansSent()
	return true
}
