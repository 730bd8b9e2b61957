package roce

import (
	"iter"

	"github.com/softmkey/softmkey/rdma"
)

// Recovery of lost READ and atomic responses from a peer without selective repeat.
//
// Such a peer answers the requests of a QP one after the other. A response therefore shows that all
// requests that were sent before its own have been answered. What is still missing of them was lost.
// The requester asks for these responses again, in one request for each READ, from the first missing
// response to the last. Responses after a missing one are kept until it arrives.
//
// A request is repeated when the answer to the one before it has ended, and not before: some peers
// finish that answer first and repeat the responses then, others break it off.

// repeatedRequest is the latest repeated request for responses of a READ or atomic.
type repeatedRequest struct {
	from, to uint32 // the responses that it asks for, as positions in the READ
	next     uint32 // requests that are not repeated, from this PSN on, were sent after it
	order    uint32 // its number among the repeated requests of the QP, from 1
	at       int64  // time at which it was sent
	due      bool   // it is to be sent
	early    bool   // the answer to the request before may not have ended
	twice    bool   // an earlier request began with the same response
	answered bool   // a response has arrived
	ended    bool   // the last of its responses has arrived
}

// repeatedRequests records how far the peer has answered the requests of a QP. QPs that have sent no READ or
// atomic have none.
type repeatedRequests struct {
	first uint32 // highest PSN of a response to a request that was not repeated
	order uint32 // highest order of a repeated request that was answered; 0: none
	next  uint32 // next of that request
	sent  uint32 // number of repeated requests that were sent
	live  int    // number of repeatedRequests in the list of outstanding Work

	// Responses that a probe asked for again. They may only be late. Then they arrive twice, before
	// any response to a request that was sent later.
	ambiguous     int64  // number of them; 0: none
	ambiguousNext uint32 // PSN of the next request when the probe was sent
	lastCopy      uint32 // PSN of the last response that arrived twice

	refusedPSN uint32 // PSN of the last request that the peer has reported missing
	refusedAt  int64  // time at which that loss was handled; 0: none was lost
}

// any reports whether there are repeatedRequests in the list of outstanding Work.
func (r *repeatedRequests) any() bool { return r != nil && r.live > 0 }

// markAmbiguous records that a probe asked again for n responses. next is the PSN of the next request. Later
// probes of the same requests ask for some of them once more.
func (r *repeatedRequests) markAmbiguous(n int64, next uint32) {
	r.ambiguous, r.ambiguousNext = max(n, r.ambiguous), next
}

// copied records that response psn arrived twice. It reports whether it follows the last one that did.
func (r *repeatedRequests) copied(psn uint32) (follows bool) {
	if r == nil {
		return false
	}
	follows = psn == psnAdd(r.lastCopy, 1)
	r.ambiguous, r.lastCopy = 0, psn
	return follows
}

// resolve returns the number of ambiguous responses that were lost, because response psn arrived.
// probed means that it answers the request of a probe for certain, and not the one before.
func (r *repeatedRequests) resolve(psn uint32, probed bool) (lost int64) {
	if r.ambiguous > 0 && (probed || psnDiff(psn, r.ambiguousNext) >= 0) {
		lost, r.ambiguous = r.ambiguous, 0
	}
	return lost
}

// drop removes the repeatedRequest of w, because w is complete or its request is sent anew.
func (r *repeatedRequests) drop(w *Work) {
	if w.progress.repeatedRequest != nil {
		w.progress.repeatedRequest = nil
		r.live--
	}
}

// restart forgets which requests the peer has answered, because the requester goes back to PSN una and
// sends all requests from there again. No READ or atomic before una is outstanding.
func (r *repeatedRequests) restart(una uint32) {
	if r == nil {
		return
	}
	r.first, r.order, r.next, r.sent = psnAdd(una, -1), 0, 0, 0
}

// refused records that the peer reported that request psn is missing, while responses of earlier
// requests are, too. It reports whether to handle that: once per round trip, as gap.reported does. The
// peer learns of the loss of another request only after it has received this one, so trip, the
// shortest round trip, limits reports with other PSNs.
func (r *repeatedRequests) refused(psn uint32, trip, timeout, now int64) bool {
	if since := now - r.refusedAt; r.refusedAt != 0 && (since < trip/2 || r.refusedPSN == psn && since < timeout) {
		return false
	}
	r.refusedPSN, r.refusedAt = psn, now
	return true
}

// answered records that response psn of w arrived, which was missing. It reports whether that may show
// a loss. repeated means that it answers a repeated request for certain. trip is the shortest round
// trip to the peer, or 0: an answer that comes sooner after the repeated request belongs to an earlier one.
func (r *repeatedRequests) answered(w *Work, psn uint32, repeated bool, trip, now int64) bool {
	p := w.progress.repeatedRequest
	if i := w.index(psn); p != nil && i >= p.from && i < p.to {
		if p.due || trip == 0 || now-p.at < trip {
			return false
		}
		p.answered = true
		if p.early = p.early && !repeated; p.early {
			return false // perhaps a response to the request before
		}
		p.ended = p.ended || i+1 == p.to
		if int32(p.order-r.order) <= 0 {
			return p.ended
		}
		r.order, r.next = p.order, p.next
		return true
	}
	if psnDiff(psn, r.first) <= 0 {
		return false
	}
	r.first = psn
	return true
}

// roundTrip returns the time since the request if response i, which answers a repeated request, is the
// first one and can answer no other request. Otherwise it returns 0.
func (p *repeatedRequest) roundTrip(i uint32, now int64) int64 {
	if p.due || p.twice || p.answered || i != p.from {
		return 0
	}
	return now - p.at
}

// executed records that the peer has answered the requests before PSN psn that were not repeated.
func (r *repeatedRequests) executed(psn uint32) {
	if r != nil {
		raise(&r.first, psnAdd(psn, -1))
	}
}

// resent records that the requests from PSN psn on are sent again, because one was lost before the peer
// executed it. w is an outstanding READ or atomic before them.
func (r *repeatedRequests) resent(w *Work, psn uint32) {
	if p := w.progress.repeatedRequest; p != nil && psnDiff(p.next, psn) > 0 {
		p.next = psn
	}
	if psnDiff(r.next, psn) > 0 {
		r.next = psn
	}
}

// finished reports whether the answer to the latest request for w has ended.
func (r *repeatedRequests) finished(w *Work) bool {
	p := w.progress.repeatedRequest
	if p == nil {
		last := psnAdd(w.progress.first, int(w.progress.count)-1)
		return psnDiff(r.first, last) >= 0 || r.order != 0 && psnDiff(r.next, last) > 0
	}
	return !p.due && (p.ended || int32(r.order-p.order) > 0 || psnDiff(r.first, p.next) >= 0)
}

// missingOf returns the range of the responses of w that are missing, as positions. It is empty if
// there are none.
func (r *requester) missingOf(w *Work) (from, to uint32) {
	if psnDiff(r.una, w.progress.first) > 0 {
		from = w.index(r.una)
	}
	for to = w.progress.count; from < to && r.reads.early.has(psnAdd(w.progress.first, int(from))); {
		from++
	}
	for from < to && r.reads.early.has(psnAdd(w.progress.first, int(to)-1)) {
		to--
	}
	return from, to
}

// findLost asks again for responses that were lost.
func (q standard) findLost(now int64) {
	r := &q.req
	if q.state != rdma.StateRTS || r.waiting {
		return
	}
	lost := int64(0)
	for w := range r.answering() {
		if r.repeatedRequests.finished(w) {
			lost += q.repeatedRequest(w)
		}
	}
	q.lostResponses(lost, now)
}

// lostResponses records that n responses were lost.
func (q standard) lostResponses(n, now int64) {
	if n == 0 {
		return
	}
	q.countLoss(n)
	for n := range q.counting {
		n.ImpliedNAKs.Add(1)
	}
	q.peer.in.cut(now, q.req.rtt.known(), n)
	q.req.rtt.cancel()
}

// answering iterates over the READs and atomics that were sent and are not complete.
func (r *requester) answering() iter.Seq[*Work] {
	return func(yield func(*Work) bool) {
		for w := r.head.sendable(); w != nil && psnDiff(w.progress.first, r.next) < 0; w = w.progress.next.sendable() {
			if w.hasResponses() && !yield(w) {
				return
			}
		}
	}
}

// repeatedRequest makes a repeated request for the missing responses of w due. It returns the number of
// responses that were lost.
func (q standard) repeatedRequest(w *Work) (lost int64) {
	r := &q.req
	from, to := r.missingOf(w)
	if from == to {
		return 0
	}
	early := !r.repeatedRequests.finished(w)
	p := w.progress.repeatedRequest
	asked := w.progress.count
	twice := w.progress.again > 0 // perhaps by a request that was sent anew
	if p != nil {
		asked = p.to
		twice = p.from == from && (p.at != 0 || p.twice)
	}
	for i := from; i < min(to, asked); i++ {
		if i-from >= maxEarly { // the early buffer holds no responses from here on
			lost += int64(min(to, asked) - i)
			break
		}
		if !r.reads.early.has(psnAdd(w.progress.first, int(i))) {
			lost++
		}
	}
	if p == nil {
		p = new(repeatedRequest)
		w.progress.repeatedRequest = p
		r.repeatedRequests.live++
	} else if !p.answered {
		lost = min(lost, 1) // probably that request was lost, rather than all responses
	}
	if to = min(to, from+q.burst()); psnDiff(r.executedUpTo, w.progress.first) <= 0 {
		// The peer may not have the first request, and would take this one for it.
		from, to = 0, w.progress.count
	}
	*p = repeatedRequest{from: from, to: to, due: true, early: early, twice: twice}
	r.mayBuild()
	return lost
}

// leastPart is the smallest number of responses that one request asks for, unless fewer are left.
const leastPart = 4

// burst returns the number of responses that one repeated request may ask for, which is what the window
// holds.
func (q standard) burst() uint32 {
	return uint32(max(q.peer.in.limit.Load()/q.fullCost(), leastPart))
}

// putRepeatedRequests adds the repeated requests that are due to b, as far as the answers to all of them fit
// two bursts. The others follow when answers have arrived. It reports whether the trains had room.
func (q standard) putRepeatedRequests(b *builder, now int64) bool {
	r := &q.req
	if !r.repeatedRequests.any() {
		return true
	}
	expected := int64(0)
	for w := range r.answering() {
		if p := w.progress.repeatedRequest; p != nil && !p.due && !r.repeatedRequests.finished(w) {
			expected += int64(p.to - p.from)
		}
	}
	most := 2 * int64(q.burst())
	for w := range r.answering() {
		p := w.progress.repeatedRequest
		if p == nil || !p.due {
			continue
		}
		n := int64(p.to - p.from)
		if expected > 0 && expected+n > most {
			break
		}
		expected += n
		if !q.putRepeatedRequest(b, w, now) {
			return false
		}
	}
	return true
}

// putRepeatedRequest adds the repeated request of w to b.
func (q standard) putRepeatedRequest(b *builder, w *Work, now int64) bool {
	r := &q.req
	p := w.progress.repeatedRequest
	psn := psnAdd(w.progress.first, int(p.from))
	if w.Op == rdma.WRRead {
		if !q.putRead(b, w, p.from, p.to, psn, 0) {
			return false
		}
	} else if !q.putAtomic(b, w, psn) {
		return false
	}
	r.repeatedRequests.sent++
	p.due, p.next, p.order, p.at = false, r.next, r.repeatedRequests.sent, now
	q.sentAgain(w, psn, p.to-p.from)
	return true
}

// probeResponses asks again for the missing responses of w, the READ or atomic of una, because no
// response has arrived for a while. From the second time on, it asks for those of all READs, because a
// line that loses bursts may lose a single request again.
func (q standard) probeResponses(b *builder, w *Work, now int64) bool {
	r := &q.req
	if p := w.progress.repeatedRequest; p != nil && !p.due && now-p.at < r.rtt.typical() {
		r.probes.done() // its answer may be on the way
		return true
	}
	lost := q.repeatedRequest(w)
	r.rtt.retransmitted(r.una)
	r.probes.put(r.una)
	if a, _ := r.retries.lastAnswer(); a.at != 0 && r.rtt.sampled && now-a.at >= r.rtt.timeout() {
		if r.probes.backoff > 1 {
			for v := range r.answering() {
				if p := v.progress.repeatedRequest; p == nil || !p.due {
					lost += q.repeatedRequest(v)
				}
			}
		}
		r.repeatedRequests.markAmbiguous(lost, r.next)
	}
	return q.putRepeatedRequest(b, w, now)
}
