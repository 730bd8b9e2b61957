package roce

import "github.com/softmkey/softmkey/internal/base/wire"

// Selective repeat, the responder's half.

// holdRequest keeps a request that is d after the expected one, and asks for a
// SelectiveAck.
func (q *QP) holdRequest(k *packet, raw []byte, d int) {
	s := &q.resp
	q.port.n.OutOfSequence.Add(1)
	if raw != nil && s.early.put(k.PSN, d, raw) {
		q.port.n.EarlyPackets.Add(1)
	}
	if psnDiff(k.PSN, s.high) >= 0 || psnDiff(s.high, s.psn) <= 0 {
		s.high = psnAdd(k.PSN, 1)
	}
	s.sack = true
}

// takeEarlyRequests carries out the requests that were kept and are next now.
func (q *QP) takeEarlyRequests(now int64) {
	s := &q.resp
	for s.early.count > 0 && !s.dying && s.nak == 0 && q.state >= StateRTR && q.state <= StateRTS {
		b := s.early.take(s.psn)
		if b == nil {
			return
		}
		var k packet
		k.parse(b)
		psn := s.psn
		q.inSequence(&k)
		s.ack = s.ack || s.psn != psn
		if s.psn == psn {
			return
		}
	}
}

// putSelectiveAck adds a SelectiveAck.
func (q *QP) putSelectiveAck(b *builder) bool {
	s := &q.resp
	bits := min(psnDiff(s.high, s.psn)-1, wire.MaxSelectiveAck, 8*q.recv.MTU)
	words := max(1, (bits+31)/32)
	size := wire.BTHLen + 4*words + wire.ICRCLen
	p, id := b.add(q.recv.Peer, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: wire.SelectiveAck, MigReq: true, PKey: wire.DefaultPKey, DestQP: q.recv.DestQPN, PSN: s.psn,
	})
	m := p[wire.BTHLen : size-wire.ICRCLen]
	clear(m)
	for i := range bits {
		if s.early.has(psnAdd(s.psn, 1+i)) {
			m[i/8] |= 1 << (i % 8)
		}
	}
	q.flow.Front(size).WithID(id).PutICRC(p)
	q.port.n.SelectiveAcksSent.Add(1)
	return true
}

// allow sets how many responses of a new READ may be sent, as the mark of its request
// says.
func (q *QP) allow(e *resource, mark uint8) {
	switch mark {
	case 0:
		return
	case wire.GrantNone:
		e.allowed = 0
	default:
		e.allowed = min(e.count, wire.GrantUnit*uint32(mark))
	}
	q.grant(e)
}

// grant lets the responses of e be sent that the peer has granted.
func (q *QP) grant(e *resource) {
	if d := psnDiff(q.resp.granted, e.first); d > int(e.allowed) {
		e.allowed = min(uint32(d), e.count)
	}
}

// maxRepeats is the number of runs of responses that wait to be sent again.
const maxRepeats = 4 * wire.MaxSpans

// repeatSpans queues the responses that a RepeatResponses with a mark names. A span
// without packets stands for the end of those of one request; First is its mark then.
func (q *QP) repeatSpans(psn uint32, mark uint8, body []byte) {
	s := &q.resp
	if q.state < StateRTR || q.state > StateRTS || s.dying {
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
	q.port.n.DuplicateRequests.Add(1)
	for len(body) >= wire.SpanLen && len(s.repeats) < maxRepeats {
		span, n, _ := wire.ParseSpan(body)
		body = body[n:]
		if span.Count == 0 {
			q.retireBefore(span.First)
		}
		if span.Count = min(span.Count, maxEarly); span.Count > 0 {
			s.repeats = append(s.repeats, span)
		}
	}
	s.repeats = append(s.repeats, wire.Span{First: uint32(mark)})
}

// buildRepeats sends responses again, and reports whether all are sent.
func (q *QP) buildRepeats(b *builder, budget *int) (done bool) {
	s := &q.resp
	for len(s.repeats) > 0 {
		span := &s.repeats[0]
		if span.Count == 0 {
			s.mark = uint8(span.First)
			s.repeats = s.repeats[1:]
			continue
		}
		if *budget <= 0 {
			return false
		}
		n, ok := q.putRepeat(b, span.First)
		if !ok {
			return false
		}
		*budget -= n
		span.First = psnAdd(span.First, 1)
		if span.Count--; span.Count == 0 {
			s.repeats = s.repeats[1:]
		}
	}
	s.repeats = nil
	q.closeRepeat()
	return true
}

// putRepeat adds the response psn once more, and returns about what it takes of a turn;
// false if there is no room in the trains. A response that was never sent, or whose
// memory is gone, is left out.
func (q *QP) putRepeat(b *builder, psn uint32) (n int, ok bool) {
	e := q.resourceOf(psn)
	if e == nil {
		q.resp.repeats[0].Count = 1 // nor were those behind it
		return packetCost, true
	}
	if e.kind != wire.ReadRequest {
		n = q.putAtomicResponse(b, e)
		return n, n > 0
	}
	src := e.src
	if !e.pending && e.length > 0 {
		if q.resp.repeating != e {
			q.closeRepeat()
			opened, nak := q.h.OpenRead(e.rkey, e.va, e.length, e.reported)
			if nak != NAKNone {
				q.port.n.StaleRequests.Add(1)
				q.resp.repeats[0].Count = 1
				return packetCost, true
			}
			q.resp.repeating, q.resp.repeatSrc = e, opened
		}
		src = q.resp.repeatSrc
	}
	i := uint32(psnDiff(psn, e.first))
	op := wire.ReadResponseMiddle
	switch {
	case e.count == 1:
		op = wire.ReadResponseOnly
	case i+1 == e.count:
		op = wire.ReadResponseLast
	}
	n, err := q.putReadResponse(b, e, src, i, op)
	if err != nil {
		q.port.n.StaleRequests.Add(1)
		q.resp.repeats[0].Count = 1
		return packetCost, true
	}
	return n, n > 0
}

// retire ends the repetition of all READs and atomics but the newest n, whose responses
// the peer has. A repeat that is queued, or asked for by a packet that arrives late, would
// read memory that the application may be writing to already: the message that lets it do
// so can be the one whose packet has this mark.
func (q *QP) retire(n int) {
	s := &q.resp
	for i := n + 1; i <= len(s.ring); i++ {
		e := &s.ring[(s.next-i+len(s.ring))%len(s.ring)]
		if e.kind == 0 || e.retired {
			return // and so are all older ones
		}
		if e.sent < e.count {
			continue // a false statement: the peer cannot have responses that were not sent
		}
		e.retired = true
		if s.repeating == e {
			q.closeRepeat()
		}
		q.closeRead(e)
	}
}

// retireBefore is retire for the READs and atomics whose responses all precede psn.
func (q *QP) retireBefore(psn uint32) {
	s := &q.resp
	for i := range s.ring {
		e := &s.ring[i]
		if e.kind == 0 || e.retired || e.sent < e.count || psnDiff(psn, e.first) < int(e.count) {
			continue
		}
		e.retired = true
		if s.repeating == e {
			q.closeRepeat()
		}
		q.closeRead(e)
	}
}

// resourceOf returns the READ or atomic that response psn belongs to, if it was sent
// before and the peer may still need it; otherwise nil.
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

// closeRepeat ends the Source of responses that were sent again.
func (q *QP) closeRepeat() {
	s := &q.resp
	if s.repeating != nil {
		e, src := s.repeating, s.repeatSrc
		s.repeating, s.repeatSrc = nil, nil
		e.reported = max(e.reported, q.h.EndRead(src))
	}
}
