package roce

import "github.com/softmkey/softmkey/internal/net/wire"

// reads is the requester's state of the responses to its READs and atomics: the
// early responses, the grants, and the requests for missing responses.
type reads struct {
	early      early
	*wanted                // nil: none
	reordering *reordering // of responses; nil: none was lost

	high     uint32 // one after the last response that the peer is known to have sent
	overdue  uint32 // a missing response before this PSN is lost
	granted  uint32 // the peer may send responses before this PSN
	grantEnd uint32 // one after the last response of all READs that were sent
	scanned  uint32 // responses before this PSN were examined

	regrant  bool // the grant may have been lost: send it once more
	repeated bool // responses of outstanding READs were asked for more than once
	withdraw bool // send a withdrawal: a RepeatResponses that states that all responses before una have arrived

	askMark   uint8 // mark of the last RepeatResponses sent
	gotMark   uint8 // mark of the last RepeatResponses that the peer answered
	marked    bool  // gotMark has advanced: responses that were asked for may have been lost again
	probing   bool  // a probe for responses is outstanding, with mark probeMark
	probeMark uint8
	probeHigh uint32 // one after the last response that was granted when the probe was sent
}

// wanted holds the responses that are to be asked for, and those that were.
type wanted struct {
	missing []wire.Span // responses to ask for
	asks    []uint8     // see asked; indexed with the PSN modulo the length
}

// want returns the wanted responses, which it allocates for the first.
func (r *reads) want() *wanted {
	if r.wanted == nil {
		r.wanted = new(wanted)
	}
	return r.wanted
}

func (r *reads) init(psn uint32) {
	r.early.clear()
	*r = reads{high: psn, overdue: psn, granted: psn, grantEnd: psn, scanned: psn}
}

// leave drops everything, because the QP leaves its state.
func (r *reads) leave(mem *recoveryMemory) {
	r.forget()
	r.dropAsks(mem)
	r.repeated, r.withdraw = false, false
	r.early.clear()
}

// goBack discards the grants from una on, because the READs are sent again.
func (r *reads) goBack(una uint32) {
	r.granted, r.grantEnd = una, una
	r.early.clear()
}

// seen records that response psn arrived.
func (r *reads) seen(psn, una uint32) {
	if psnDiff(psn, r.high) >= 0 || psnDiff(r.high, una) < 0 {
		r.high = psnAdd(psn, 1)
	}
}

// requestedAgain records that a READ or atomic, or some of its responses, were requested
// again.
func (r *reads) requestedAgain() { r.repeated = true }

// grantLost records that the peer may not have the grant.
func (r *reads) grantLost() { r.regrant = true }

// completed records that all responses of a READ arrived. It reports whether a withdrawal is
// to be sent. outstanding means that there are more packets in flight.
//
// The peer may still hold RepeatResponses for this READ. They are withdrawn before the
// application sees the completion, so every message that it then sends, on any QP, leaves
// after the withdrawal.
func (r *reads) completed(outstanding bool) (withdraw bool) {
	if !r.repeated {
		return false
	}
	r.withdraw, r.repeated = true, outstanding
	return true
}

// maxAsks is the largest number of unanswered RepeatResponses. It is small enough to
// compare their 7-bit marks in circular arithmetic.
const maxAsks = 32

// markDiff returns a - b in circular 7-bit arithmetic.
func markDiff(a, b uint8) int { return int(int8((a-b)<<1) >> 1) }

// asked returns the entry of response psn in asks: 1 + the mark of the last RepeatResponses
// that asked for it, or 0. There is an entry for each response from una on that was asked for.
func (r *reads) asked(psn uint32) *uint8 { return &r.asks[int(psn)&(len(r.asks)-1)] }

// forgetAsk removes the entry of response psn, because una passes it.
func (r *reads) forgetAsk(psn uint32) {
	if r.wanted != nil && r.asks != nil {
		*r.asked(psn) = 0
	}
}

// fitAsks makes asks as long as the n PSNs from una on. It reports whether the port has the
// memory.
func (r *reads) fitAsks(una uint32, n int, mem *recoveryMemory) bool {
	if n <= len(r.want().asks) {
		return true
	}
	size := 64
	for size < n {
		size *= 2
	}
	if !mem.take(size) {
		return false
	}
	old := r.asks
	r.asks = make([]uint8, size)
	for i := range old {
		psn := psnAdd(una, i)
		*r.asked(psn) = old[int(psn)&(len(old)-1)]
	}
	mem.give(len(old))
	return true
}

// dropAsks forgets which responses were asked for.
func (r *reads) dropAsks(mem *recoveryMemory) {
	if r.wanted == nil {
		return
	}
	mem.give(len(r.asks))
	r.asks = nil
	if len(r.missing) == 0 {
		r.wanted = nil
	}
}

// toScan returns the range of responses to examine for gaps: those that are missing while
// later ones have arrived, unless they were examined and the peer has not yet answered a
// RepeatResponses since. The range is empty if no more may be asked for now.
func (r *reads) toScan(una uint32) (from, to uint32) {
	from = r.scanned
	if r.marked || psnDiff(from, una) < 0 {
		from = una
	}
	to = psnAdd(r.high, -r.reordering.most(psnDiff(r.granted, una)-r.early.len()))
	raise(&to, r.overdue)
	if psnDiff(to, from) <= 0 || markDiff(r.askMark, r.gotMark) >= maxAsks || r.wanted != nil && len(r.missing) > 0 {
		return from, from
	}
	r.marked = false
	return from, to
}

// scan adds the missing responses in [from, to), which belong to one READ or atomic, to
// missing, with the next mark. If all is set, it includes responses that were asked for
// before and may still arrive. If remember is set, asks has entries for them. It returns the
// PSN at which it stopped, which is before to if the list is full, and the number added.
func (r *reads) scan(from, to uint32, all, remember bool) (next uint32, added int64) {
	mark := r.nextMark()
	r.want()
	for p := from; psnDiff(p, to) < 0; p = psnAdd(p, 1) {
		if r.early.has(p) {
			continue
		}
		if !all {
			if a := *r.asked(p); a != 0 && markDiff(a-1, r.gotMark) > 0 {
				continue // it may still arrive
			}
		}
		n := len(r.missing)
		if n > 0 && psnAdd(r.missing[n-1].First, int(r.missing[n-1].Count)) == p {
			r.missing[n-1].Count++
		} else if n == wire.MaxSpans {
			return p, added
		} else {
			r.missing = append(r.missing, wire.Span{First: p, Count: 1})
		}
		added++
		if remember {
			*r.asked(p) = mark + 1
		}
	}
	return to, added
}

func (r *reads) nextMark() uint8 { return (r.askMark + 1) & 0x7f }

// useMark uses the next mark for the responses in missing.
func (r *reads) useMark() { r.askMark = r.nextMark() }

// arrived records that response psn arrived for the first time. If it was asked for, it may arrive again.
func (r *reads) arrived(psn, una uint32, rtt, now int64) {
	if r.wanted == nil || psnDiff(psn, una) >= len(r.asks) {
		return
	}
	a := *r.asked(psn)
	if a == 0 || a-1 == r.probeMark {
		return // a probe asks for responses that were asked for before, and are repeated for that
	}
	r.reordering.arrived(psn, a-1, psnDiff(r.high, psn), rtt, now)
}

// probed records that a probe for responses is sent with the last mark. When the peer answers
// it, the peer has sent everything that was granted before.
func (r *reads) probed() {
	r.probing, r.probeMark, r.probeHigh = true, r.askMark, r.granted
}

// seeMark records the mark of a response. The peer has answered all RepeatResponses up to
// that mark, so a response that they asked for and that is still missing was lost again.
func (r *reads) seeMark(mark uint8) {
	if markDiff(mark, r.gotMark) <= 0 || markDiff(r.askMark, mark) < 0 {
		return
	}
	r.reordering.answered(mark)
	r.gotMark = mark
	r.marked = true
	if r.probing && markDiff(mark, r.probeMark) >= 0 {
		r.probing = false
		raise(&r.high, r.probeHigh)
		raise(&r.overdue, r.probeHigh)
	}
}

// sentRead records that the request for responses [psn, end) was sent, with a grant for the
// first n.
func (r *reads) sentRead(psn, end uint32, n int) {
	r.grantEnd = end
	if n > 0 {
		r.granted = psnAdd(psn, n)
	}
}

// ungranted reports whether the peer has responses of earlier READs that are not
// granted yet.
func (r *reads) ungranted() bool { return psnDiff(r.granted, r.grantEnd) < 0 }

// grantsPerWindow is the smallest number of grants per window. More grants keep the
// responder busy; fewer save packets.
const grantsPerWindow = 8

// mayGrant reports whether to grant more responses. room is the number of
// responses for which the read window has room, and all the number that the
// whole window holds.
func (r *reads) mayGrant(una uint32, room, all int64) bool {
	raise(&r.granted, una)
	return r.ungranted() && room >= r.leastGrant(all)
}

// leastGrant returns the number of responses of a grant, unless fewer are left. all is as for mayGrant.
func (r *reads) leastGrant(all int64) int64 {
	return min(max(all/grantsPerWindow, 1), int64(psnDiff(r.grantEnd, r.granted)))
}

// grantUpTo grants the responses before psn.
func (r *reads) grantUpTo(psn uint32) { r.granted = psn }

// spans returns the spans of the next RepeatResponses. Spans before una have arrived since
// they were queued. They are sent with a count of 0 and una as the first PSN: the responder
// answers the mark, and no longer repeats READs before una.
func (r *reads) spans(una uint32) []wire.Span {
	if r.wanted == nil && !r.withdraw {
		return nil
	}
	if len(r.want().missing) > 0 {
		r.repeated = true
	}
	if r.withdraw && len(r.missing) < wire.MaxSpans {
		r.missing = append(r.missing, wire.Span{First: una})
		r.withdraw = false
	}
	for i := range r.missing {
		s := &r.missing[i]
		if late := psnDiff(una, s.First); late > 0 {
			*s = wire.Span{First: una, Count: s.Count - min(s.Count, uint32(late))}
		}
	}
	return r.missing
}

// forget drops the responses that were to be asked for.
func (r *reads) forget() {
	if r.wanted != nil {
		r.missing = r.missing[:0]
	}
}

// asking reports whether a RepeatResponses is to be sent besides a grant.
func (r *reads) asking() bool { return r.withdraw || r.wanted != nil && len(r.missing) > 0 }

// spansSent records that the spans and the grant were sent.
func (r *reads) spansSent() {
	r.forget()
	r.regrant = false
}
