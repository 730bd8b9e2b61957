package roce

import "github.com/softmkey/softmkey/internal/base/wire"

// Selective repeat of READ and atomic responses, the requester's half: the requester
// keeps early responses, asks for missing ones, and grants responses as the window has
// room.

// holdResponse keeps a response that arrived before an earlier one.
func (q *QP) holdResponse(k *packet, raw []byte, now int64) {
	r := &q.req
	w := r.head
	for w != nil && w.index(k.PSN) >= w.progress.count {
		w = w.progress.next
	}
	d := psnDiff(k.PSN, r.una)
	if w == nil || d <= 0 || raw == nil || r.early.has(k.PSN) {
		return
	}
	if psnDiff(k.PSN, r.tx) >= 0 || q.recv.Selective && w.Op == OpRead && psnDiff(k.PSN, r.granted) >= 0 {
		return // a response to a request that is about to be retransmitted
	}
	q.executed(psnAdd(w.progress.first, 1))
	if r.early.put(k.PSN, d, raw) {
		q.port.n.EarlyPackets.Add(1)
		_, in := q.cost(w, w.index(k.PSN), w.index(k.PSN)+1)
		q.giveBack(0, min(in, r.in), now)
	}
	if psnDiff(k.PSN, r.respHigh) >= 0 || psnDiff(r.respHigh, r.una) < 0 {
		r.respHigh = psnAdd(k.PSN, 1)
	}
}

// takeEarly handles the kept responses that are next in order.
func (q *QP) takeEarly(now int64) {
	r := &q.req
	for r.early.count > 0 && q.state == StateRTS {
		b := r.early.remove(r.una)
		if b == nil {
			return
		}
		var k packet
		k.parse(b)
		una := r.una
		q.response(&k, nil, now)
		if r.una == una {
			return
		}
	}
}

// maxAsks is the largest number of unanswered RepeatResponses. It is small enough to
// compare their 7-bit marks in circular arithmetic.
const maxAsks = 32

// markDiff returns a - b in circular 7-bit arithmetic.
func markDiff(a, b uint8) int { return int(int8((a-b)<<1) >> 1) }

// asks has an entry for each response from una on that was asked for again: 1 + the mark
// of the last RepeatResponses that asked for it, or 0. asked returns the entry of psn.
func (r *requester) asked(psn uint32) *uint8 { return &r.asks[int(psn)&(len(r.asks)-1)] }

// fitAsks makes asks as long as the n PSNs from una on. It reports whether the port has the
// memory.
func (q *QP) fitAsks(n int) bool {
	r := &q.req
	if n <= len(r.asks) {
		return true
	}
	size := 64
	for size < n {
		size *= 2
	}
	if !q.port.recovery.take(size) {
		return false
	}
	old := r.asks
	r.asks = make([]uint8, size)
	for i := range old {
		psn := psnAdd(r.una, i)
		*r.asked(psn) = old[int(psn)&(len(old)-1)]
	}
	q.port.recovery.give(len(old))
	return true
}

// dropAsks forgets which responses were asked for.
func (q *QP) dropAsks() {
	q.port.recovery.give(len(q.req.asks))
	q.req.asks = nil
}

// findGaps finds the responses to ask for: those that are missing while later ones have
// arrived, unless the peer has not yet answered an earlier RepeatResponses for them.
func (q *QP) findGaps(now int64) {
	r := &q.req
	if !q.recv.Selective || q.state != StateRTS {
		return
	}
	if r.head == nil || psnDiff(r.respHigh, r.una) <= 0 {
		if r.asks != nil && !r.sounding {
			q.dropAsks()
		}
		return
	}
	from := r.askScan
	if r.marked || psnDiff(from, r.una) < 0 {
		from = r.una
	}
	to := psnAdd(r.respHigh, -reorderPackets)
	if psnDiff(to, from) <= 0 || markDiff(r.askMark, r.gotMark) >= maxAsks || len(r.ask) > 0 {
		return
	}
	r.marked = false
	r.askScan = q.missingResponses(from, to, false, now)
}

// missingResponses adds the missing responses in [from, to) to r.ask, and returns the PSN
// at which it stopped. If all is set, it includes responses that were asked for before
// and may still arrive.
func (q *QP) missingResponses(from, to uint32, all bool, now int64) uint32 {
	r := &q.req
	if psnDiff(to, r.una) > maxEarly {
		to = psnAdd(r.una, maxEarly) // the early buffer holds no responses after that
	}
	remember := q.fitAsks(psnDiff(to, r.una))
	if !remember && !all {
		return from // only probes ask then
	}
	mark := (r.askMark + 1) & 0x7f
	var lost int64
	p := from
	for w := r.head; w != nil && psnDiff(w.progress.first, to) < 0; w = w.progress.next {
		if !w.answered() {
			continue
		}
		if psnDiff(p, w.progress.first) < 0 {
			p = w.progress.first
		}
		for ; w.index(p) < w.progress.count && psnDiff(p, to) < 0; p = psnAdd(p, 1) {
			if r.early.has(p) {
				continue
			}
			if !all {
				if a := *r.asked(p); a != 0 && markDiff(a-1, r.gotMark) > 0 {
					continue // it may still arrive
				}
			}
			n := len(r.ask)
			if n > 0 && psnAdd(r.ask[n-1].First, int(r.ask[n-1].Count)) == p {
				r.ask[n-1].Count++
			} else if n == wire.MaxSpans {
				to = p // the list is full: the next call continues here
				break
			} else {
				r.ask = append(r.ask, wire.Span{First: p, Count: 1})
			}
			lost++
			if remember {
				*r.asked(p) = mark + 1
			}
		}
	}
	if lost > 0 {
		r.askMark = mark
		r.doubt = true
		r.again = true
		if !all {
			q.port.n.Losses.Add(1)
			q.port.n.LostPackets.Add(uint64(lost))
			q.peer.in.cut(now, r.roundTrip(), lost)
		}
	}
	return to
}

// seeMark records the mark of a response. The peer has answered all RepeatResponses up to
// that mark, so a response that they asked for and that is still missing was lost again.
func (q *QP) seeMark(k *packet) {
	r := &q.req
	if d := markDiff(k.Mark, r.gotMark); d > 0 && markDiff(r.askMark, k.Mark) >= 0 {
		r.gotMark = k.Mark
		r.marked = true
		if r.sounding && markDiff(r.gotMark, r.soundMark) >= 0 {
			// The peer sent everything that was granted before the probe
			// before it answered the probe.
			r.sounding = false
			if psnDiff(r.soundHigh, r.respHigh) > 0 {
				r.respHigh = r.soundHigh
			}
		}
	}
}

// grantsPerWindow is the smallest number of grants per window. More grants keep the
// responder busy; fewer save packets.
const grantsPerWindow = 8

// roomFor returns the number of responses for which the read window has room, and the
// number that the whole window holds.
func (q *QP) roomFor() (room, all int64) {
	in := &q.peer.in
	size := int64(q.recv.MTU + packetCost)
	limit, used := in.limit.Load(), in.used.Load()
	if room = (limit - used) / size; room <= 0 && used <= 0 {
		room = 1
	}
	return max(room, 0), limit / size
}

// firstGrant returns the number of responses, from response i of READ w on, that its
// request grants.
func (q *QP) firstGrant(w *Work, i uint32) uint32 {
	r := &q.req
	if psnDiff(r.granted, r.grantEnd) < 0 && r.reads > 0 {
		return 0
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
func grantMark(selective bool, grant, count uint32) uint8 {
	switch {
	case !selective || grant == count:
		return 0
	case grant == 0:
		return wire.GrantNone
	}
	return uint8(grant / wire.GrantUnit)
}

// grantMore grants responses for which the window has room. It reports whether to send a
// RepeatResponses for that.
func (q *QP) grantMore(now int64) bool {
	r := &q.req
	send := r.regrant
	if psnDiff(r.granted, r.una) < 0 {
		r.granted = r.una
	}
	if psnDiff(r.granted, r.grantEnd) >= 0 {
		return send
	}
	room, all := q.roomFor()
	if room < min(max(all/grantsPerWindow, 1), int64(psnDiff(r.grantEnd, r.granted))) {
		return send
	}
	if r.rttStart == 0 {
		r.rttStart, r.rttPSN, r.doubt = now, r.granted, false
	}
	for w := r.head; w != nil && room > 0 && psnDiff(w.progress.first, r.grantEnd) < 0; w = w.progress.next {
		if w.Op != OpRead {
			continue
		}
		from := max(0, psnDiff(r.granted, w.progress.first))
		n := min(int64(w.progress.count)-int64(from), room)
		if n <= 0 {
			continue
		}
		_, in := q.cost(w, uint32(from), uint32(from)+uint32(n))
		q.peer.in.used.Add(in)
		r.in += in
		room -= n
		r.granted = psnAdd(w.progress.first, from+int(n))
		send = true
	}
	return send
}

// putAsk adds a RepeatResponses with the grant and the missing responses to b. Spans
// before una have arrived since they were queued. They are sent with a count of 0 and una
// as the first PSN: the responder answers the mark, and no longer repeats READs before
// una.
func (q *QP) putAsk(b *builder) bool {
	r := &q.req
	if len(r.ask) > 0 {
		r.repeated = true
		r.tried(r.ask[0].First)
	}
	if r.withdraw && len(r.ask) < wire.MaxSpans {
		r.ask = append(r.ask, wire.Span{First: r.una})
		r.withdraw = false
	}
	size := wire.BTHLen + len(r.ask)*wire.SpanLen + wire.ICRCLen
	p, id := b.add(q.link, q.recv.Peer, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: wire.RepeatResponses, MigReq: true, PKey: wire.DefaultPKey, DestQP: q.recv.DestQPN, PSN: r.granted, Mark: r.askMark,
	})
	for i := range r.ask {
		span := &r.ask[i]
		if late := psnDiff(r.una, span.First); late > 0 {
			*span = wire.Span{First: r.una, Count: span.Count - min(span.Count, uint32(late))}
		}
		wire.PutSpan(p[wire.BTHLen+i*wire.SpanLen:], span)
		r.expect(span.Count)
	}
	q.flow.Front(size).WithID(id).PutICRC(p)
	r.ask, r.regrant = r.ask[:0], false
	return true
}
