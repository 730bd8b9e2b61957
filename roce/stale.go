package roce

// A QP remembers PSNs of past events, such as the last grant, the highest response that arrived
// early, and the READs that it can answer again. PSNs are circular: two of them can be compared only
// while less than half of the circle lies between them. A connection can execute more requests than
// that without such an event, and an old PSN would then count as a future one.
//
// So each time the oldest PSN that matters enters another epoch, the QP moves the PSNs that it has
// left behind up to it. What they say stays true, because each of them is a lower bound.

// epochBits is the number of low bits of a PSN that count within an epoch.
const epochBits = 20

// changesEpoch reports whether the PSN n after psn is in another epoch.
func changesEpoch(psn uint32, n int) bool { return psn>>epochBits != psnAdd(psn, n)>>epochBits }

// raise moves a PSN up to another one, if it is before that.
func raise(psn *uint32, to uint32) {
	if psnDiff(*psn, to) < 0 {
		*psn = to
	}
}

// pass moves una past n PSNs, as that of workList does, and raises the older PSNs.
func (r *requester) pass(n int) {
	if changesEpoch(r.una, n) {
		r.reads.raise(r.una)
		r.rerequests.raise(r.una)
	}
	r.workList.pass(n)
}

func (r *reads) raise(una uint32) {
	raise(&r.high, una)
	raise(&r.overdue, una)
	raise(&r.scanned, una)
	raise(&r.granted, una)
	raise(&r.grantEnd, una)
}

func (r *rerequests) raise(una uint32) {
	if r == nil {
		return
	}
	raise(&r.first, psnAdd(una, -1))
	raise(&r.next, una)
	raise(&r.doubtfulNext, una)
}

// expectAfter moves the expected PSN past n packets of requests, or responses to a READ. A READ alone
// may have nearly as many as half of the circle, so the older PSNs are raised before and after.
func (q *QP) expectAfter(n int) {
	s := &q.resp
	changes := changesEpoch(s.psn, n)
	if changes {
		q.raiseExecuted()
	}
	s.psn = psnAdd(s.psn, n)
	if changes {
		q.raiseExecuted()
	}
}

// raiseExecuted raises the responder's PSNs. The responder no longer repeats the responses of a READ or
// atomic that is half of the circle old: the PSNs of new requests come near those of the old one again.
func (q *QP) raiseExecuted() {
	s := &q.resp
	oldest := s.psn // before it, every READ and atomic has been answered
	for i := range s.ring {
		e := &s.ring[i]
		switch age := (s.psn - e.first - e.count) & psnMask; {
		case e.kind == 0 || e.retired:
		case e.pending:
			if psnDiff(e.first, oldest) < 0 {
				oldest = e.first
			}
		case age > psnMask/2:
			q.retireOne(e)
		}
	}
	raise(&s.high, s.psn)
	raise(&s.granted, oldest)
	raise(&s.done, psnAdd(oldest, -1))
}
