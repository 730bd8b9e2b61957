package roce

import (
	"encoding/binary"

	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// Selective repeat, the responder's half: the responder keeps early requests, reports
// them with SelectiveAcks, and repeats the responses that the requester asks for.

// requestAhead keeps the request, and schedules a SelectiveAck.
func (q selective) requestAhead(h wire.BTH, raw []byte, d int, _ int64) {
	s := &q.resp
	if s.early.has(h.PSN) {
		s.duplicates++
	}
	if raw != nil && s.early.put(h.PSN, d, raw, &q.port.recovery) {
		q.port.n.EarlyPackets.Add(1)
	}
	raise(&s.high, psnAdd(s.psn, 1))
	most := uint8(min(s.early.len()/earlyPerSack, sackPackets))
	switch past := psnDiff(h.PSN, s.high); {
	case past < 0: // a packet was retransmitted or overtaken
		most = 0
	case past > 0: // packets are missing before it
		s.unsacked = max(s.unsacked, sackPackets-reorderPackets)
	}
	raise(&s.high, psnAdd(h.PSN, 1))
	if s.unsacked++; s.unsacked >= most || h.AckReq {
		s.sack, s.unsacked = true, 0
	}
}

// A SelectiveAck reports at most sackPackets new packets, and at most a part of earlyPerSack of
// those that the responder keeps: the requester has few packets in flight if the responder keeps
// few, and may wait for the report of each. A new loss, a retransmission and a packet that
// requests an acknowledgement are reported sooner: the requester takes a packet for lost when
// reorderPackets later ones were reported.
const (
	sackPackets  = 8
	earlyPerSack = 16
)

// takeEarlyRequests executes the kept requests that are next in order.
func (q *QP) takeEarlyRequests(now int64) {
	s := &q.resp
	for s.early.len() > 0 && s.dying == nil && s.nak == 0 && q.state >= rdma.StateRTR && q.state <= rdma.StateRTS {
		b := s.early.remove(s.psn)
		if b == nil {
			return
		}
		q.early.Lend(b)
		var k packet
		k.parseUpTo(b, len(b)) // it was checked when it arrived
		psn := s.psn
		q.inSequence(&k)
		s.ack = s.ack || s.psn != psn
		if s.psn == psn {
			return
		}
	}
}

// putSelectiveAck adds a SelectiveAck to b.
func (q *QP) putSelectiveAck(b *builder) bool {
	s := &q.resp
	bits := min(psnDiff(s.high, s.psn)-1, wire.MaxSelectiveAck, 8*q.mtu())
	words := max(1, (bits+31)/32)
	size := wire.BTHLen + 4*words + wire.ICRCLen
	way := q.path()
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: wire.SelectiveAck, MigReq: true, PKey: wire.DefaultPKey, DestQP: q.recv.DestQPN, PSN: s.psn, Mark: s.duplicates,
	})
	m := p[wire.BTHLen : size-wire.ICRCLen]
	for i := range words {
		binary.LittleEndian.PutUint32(m[4*i:], s.early.bits(psnAdd(s.psn, 1+32*i)))
	}
	q.finish(p, id)
	q.port.n.SelectiveAcksSent.Add(1)
	return true
}

// allow sets the number of responses of a new READ that may be sent, from the mark of its
// request.
func (q selective) allow(e *resource, mark uint8) {
	e.allowed = grantOf(mark, e.count)
	q.grant(e)
}

// grant allows the responses of e up to the granted PSN.
func (q selective) grant(e *resource) {
	if d := psnDiff(q.resp.granted, e.first); d > int(e.allowed) {
		e.allowed = min(uint32(d), e.count)
	}
}

// repeats is what the responder keeps while it repeats responses.
type repeats struct {
	queue []repeat
	read  *resource // READ to which src belongs, or nil
	src   Source
}

// repeat is an entry of the queue: responses to repeat or, with a Count of 0, the end of a RepeatResponses. All
// responses that follow the end carry its mark, and so does the last one before it.
type repeat struct {
	wire.Span
	mark uint8
}

// skip drops the rest of the first entry: responses that were never sent, or whose memory is no longer valid.
func (r *repeats) skip() { r.queue[0].Count = 1 }

// of reports whether responses of e are being repeated from a Source of their own.
func (r *repeats) of(e *resource) bool { return r != nil && r.read == e }

// maxRepeats limits the runs of responses that wait to be repeated.
const maxRepeats = 4 * wire.MaxSpans

// mostRepeats returns the largest number of responses that wait to be repeated:
// those of a window. A requester usually asks for no more than its window, so
// no more can be missing. A requester with a larger window, on a long path,
// asks again for the others.
func (q selective) mostRepeats() uint32 {
	return uint32(max(q.port.inLimit, DefaultWindow) / int64(q.mtu()+packetCost))
}

// queueRepeat queues the responses of span that are not queued yet, within the limits. The entries
// before queue[from] are known not to overlap it.
func (q selective) queueRepeat(span wire.Span, from int) {
	r := q.resp.repeats
	for i := from; i < len(r.queue); i++ {
		e := r.queue[i]
		after := psnDiff(span.First, e.First) // packets from the start of e to that of span
		if e.Count == 0 || after >= int(e.Count) || after <= -int(span.Count) {
			continue
		}
		if after < 0 {
			q.queueRepeat(wire.Span{First: span.First, Count: uint32(-after)}, i+1)
		}
		if rest := after + int(span.Count) - int(e.Count); rest > 0 {
			q.queueRepeat(wire.Span{First: psnAdd(e.First, int(e.Count)), Count: uint32(rest)}, i+1)
		}
		return
	}
	waiting := uint32(0)
	for _, e := range r.queue {
		waiting += e.Count
	}
	span.Count = min(span.Count, q.mostRepeats()-min(waiting, q.mostRepeats()))
	if span.Count > 0 && len(r.queue) < maxRepeats {
		r.queue = append(r.queue, repeat{Span: span})
	}
}

// repeatSpans handles a RepeatResponses: it takes the grant in psn and queues the
// responses that body names, and its end.
func (q selective) repeatSpans(psn uint32, mark uint8, body []byte) {
	s := &q.resp
	if q.state < rdma.StateRTR || q.state > rdma.StateRTS {
		return
	}
	if psnDiff(psn, s.granted) > 0 {
		s.granted = psn
		for i := range s.ring {
			if e := &s.ring[i]; e.pending {
				q.grant(e)
			}
		}
	}
	if len(body) == 0 {
		return
	}
	for n := range q.counting {
		n.DuplicateRequests.Add(1)
	}
	if s.repeats == nil {
		s.repeats = new(repeats)
	}
	r := s.repeats
	for len(body) >= wire.SpanLen {
		span, n, _ := wire.ParseSpan(body)
		body = body[n:]
		if span.Count == 0 {
			q.retireBefore(span.First)
			continue
		}
		span.Count = min(span.Count, maxEarly)
		q.queueRepeat(span, 0)
	}
	switch n := len(r.queue); {
	case n > 0 && r.queue[n-1].Count == 0:
		r.queue[n-1].mark = mark // a mark stands for all before it
	case n <= maxRepeats:
		r.queue = append(r.queue, repeat{mark: mark})
	}
}

// buildRepeats repeats responses, and reports whether all were sent.
func (q *QP) buildRepeats(b *builder, budget *int) (done bool) {
	r := q.resp.repeats
	for len(r.queue) > 0 {
		first := &r.queue[0]
		if first.Count == 0 {
			q.resp.mark = first.mark
			r.queue = r.queue[1:]
			continue
		}
		if *budget <= 0 {
			return false
		}
		// The last response carries the mark, because no other may follow.
		before := q.resp.mark
		if first.Count == 1 && len(r.queue) > 1 && r.queue[1].Count == 0 {
			q.resp.mark = r.queue[1].mark
		}
		n, ok := q.putRepeat(b, first.First)
		if !ok {
			q.resp.mark = before
			return false
		}
		*budget -= n
		first.First = psnAdd(first.First, 1)
		if first.Count--; first.Count == 0 {
			r.queue = r.queue[1:]
		}
	}
	q.closeRepeat()
	q.resp.repeats = nil
	return true
}

// putRepeat adds response psn to b once more. It returns the bytes to charge to the turn,
// and false if the trains are full. It skips a response that was never sent or whose
// memory is no longer valid.
func (q *QP) putRepeat(b *builder, psn uint32) (n int, ok bool) {
	r := q.resp.repeats
	e := q.resourceOf(psn)
	if e == nil {
		r.skip()
		return packetCost, true
	}
	if e.kind != wire.ReadRequest {
		n = q.putAtomicResponse(b, e)
		return n, n > 0
	}
	src := e.src
	if src == nil && e.length > 0 {
		if r.read != e {
			q.closeRepeat()
			opened, nak := q.h.OpenRead(e.rkey, e.va, e.length, e.reported)
			if nak != NAKNone {
				q.port.n.StaleRequests.Add(1)
				r.skip()
				return packetCost, true
			}
			r.read, r.src = e, opened
		}
		src = r.src
	}
	i := uint32(psnDiff(psn, e.first))
	op := wire.ReadResponseMiddle // also of the first of several: the requester tells only last ones from others
	switch {
	case e.count == 1:
		op = wire.ReadResponseOnly
	case i+1 == e.count:
		op = wire.ReadResponseLast
	}
	n, err := q.putReadResponse(b, e, src, i, op)
	if err != nil {
		q.port.n.StaleRequests.Add(1)
		r.skip()
		return packetCost, true
	}
	return n, n > 0
}

// retire stops the repetition of all READs and atomics but the newest n, because the
// requester has stated that it has the responses to the others. The message that carries
// the statement may allow the application to reuse their memory, which a queued or late
// repetition would then read.
func (q selective) retire(n int) {
	s := &q.resp
	for i := n + 1; i <= len(s.ring); i++ {
		e := &s.ring[(int(s.next)-i+len(s.ring))%len(s.ring)]
		if e.kind == 0 || e.retired {
			return // all older ones are retired too
		}
		if e.sent < e.count {
			continue // the statement is false: the peer cannot have responses that were not sent
		}
		q.retireOne(e)
	}
}

// retireBefore retires the READs and atomics whose responses all precede psn.
func (q selective) retireBefore(psn uint32) {
	s := &q.resp
	for i := range s.ring {
		e := &s.ring[i]
		if e.kind == 0 || e.retired || e.sent < e.count || psnDiff(psn, e.first) < int(e.count) {
			continue
		}
		q.retireOne(e)
	}
}

// retireOne stops the repetition of e.
func (q *QP) retireOne(e *resource) {
	e.retired = true
	if q.resp.repeats.of(e) {
		q.closeRepeat()
	}
	q.closeRead(e)
}

// resourceOf returns the READ or atomic to which response psn belongs, if that response
// was sent and may be repeated. Otherwise it returns nil.
func (q *QP) resourceOf(psn uint32) *resource {
	s := &q.resp
	for i := range s.ring {
		e := &s.ring[i]
		if d := psnDiff(psn, e.first); e.kind != 0 && !e.retired && d >= 0 && d < int(e.sent) {
			return e
		}
	}
	return nil
}

// closeRepeat closes the Source of repeated responses.
func (q *QP) closeRepeat() {
	if r := q.resp.repeats; r != nil && r.read != nil {
		e, src := r.read, r.src
		r.read, r.src = nil, nil
		e.reported = max(e.reported, q.h.EndRead(src))
	}
}
