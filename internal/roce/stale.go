package roce

// A QP keeps the PSNs of past events: of the last grant, of the last response that arrived early, of
// the READs that it can answer again. PSNs have 24 bits and go round: psnDiff is right only for two PSNs
// that are less than 2^23 packets apart. If 2^23 packets pass without a new event of a kind, psnDiff
// takes the PSN of the last event of that kind for one that is still to come.
//
// To prevent this, the requester compares these PSNs with una, and the responder with the PSN that it
// expects, at least once in 2^20 packets (an epoch). A PSN that is lower is replaced by the other one.
// That changes no decision: such a PSN only says that everything before it is done, and everything
// before una, or before the expected PSN, is done as well.

// epochBits is the number of bits of a PSN that change within an epoch.
const epochBits = 20

// changesEpoch reports whether the PSN n after psn is in another epoch.
func changesEpoch(psn uint32, n int) bool { return psn>>epochBits != psnAdd(psn, n)>>epochBits }

// expectAfter moves the expected PSN past n packets of requests, or responses to a READ. A READ alone
// may have nearly as many as half of the circle, so the older PSNs are raised before and after.
func (s *responder) expectAfter(n int) {
	changes := changesEpoch(s.psn, n)
	if changes {
		s.raiseExecuted()
	}
	s.psn = psnAdd(s.psn, n)
	if changes {
		s.raiseExecuted()
	}
}

// raiseExecuted raises the responder's PSNs. The responder no longer repeats the responses of a READ or
// atomic that is half of the circle old: the PSNs of new requests come near those of the old one again.
func (s *responder) raiseExecuted() {
	oldest := s.psn // before it, every READ and atomic has been answered
	for i := range s.ring {
		e := &s.ring[i]
		switch age := (s.psn - e.first - e.count) & psnMask; {
		case e.kind == 0:
		case e.pending:
			if psnDiff(e.first, oldest) < 0 {
				oldest = e.first
			}
		case age > psnMask/2:
			*e = resource{}
		}
	}
	raise(&s.done, psnAdd(oldest, -1))
}
