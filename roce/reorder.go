package roce

// reorderPackets is the number of later packets that must overtake a packet before it
// counts as lost, unless the path is known to reorder packets further.
const reorderPackets = 3

// reordering learns how far packets of one direction of a QP overtake one another, as RFC 8985 does
// for TCP. Its evidence is a packet that counted as lost, was sent again, and then arrived twice.
//
// No more later packets are waited for than there are in flight. So a packet counts as lost after about
// one round trip at the latest, and at once if all packets after it have arrived and no more are sent.
//
// A QP without lost packets has none: the pointer is nil.
type reordering struct {
	packets int32 // later packets that overtook one that was not lost, with a margin
	lost    int32 // packets that counted as lost since the last one that was not

	// Of the packets that counted as lost and then arrived, the one that may arrive twice and that the
	// fewest packets overtook.
	by   int32  // that number; 0: there is no such packet
	at   int64  // time of its arrival
	psn  uint32 // its PSN, for a response
	mark uint8  // mark of the RepeatResponses that asked for it again
}

// forgetAfter is the number of packets that count as lost, without one that arrives twice, after which
// the path is taken to reorder packets only half as far.
const forgetAfter = 64

// most returns the number of later packets that overtake a packet before it counts as lost.
func (r *reordering) most(inFlight int) int {
	if r == nil {
		return reorderPackets
	}
	return max(reorderPackets, min(int(r.packets), inFlight))
}

// arrived records that a packet arrived that counted as lost, after n packets that were sent later.
func (r *reordering) arrived(psn uint32, mark uint8, n int, rtt, now int64) {
	if r != nil && n >= reorderPackets && (r.by == 0 || n < int(r.by) || now-r.at >= 2*rtt) {
		r.by, r.at, r.psn, r.mark = int32(n), now, psn, mark
	}
}

// confirmed records that the packet arrived twice, so that it was not lost.
func (r *reordering) confirmed() {
	if r != nil && r.by != 0 {
		r.packets, r.lost = max(r.packets, r.by+r.by/4+1), 0
		r.by = 0
	}
}

// arrivedAgain records that response psn arrived once more. answered records that the peer has repeated
// the responses up to a mark, so that they do not arrive again.
func (r *reordering) arrivedAgain(psn uint32) {
	if r != nil && psn == r.psn {
		r.confirmed()
	}
}

func (r *reordering) answered(mark uint8) {
	if r != nil && markDiff(mark, r.mark) >= 0 {
		r.by = 0
	}
}

// lose records that n packets count as lost. It returns r, or a new reordering for the first ones.
func (r *reordering) lose(n int64) *reordering {
	if r == nil {
		r = new(reordering)
	}
	if r.lost += int32(min(n, forgetAfter)); r.lost >= forgetAfter {
		r.packets, r.lost = r.packets/2, 0
	}
	return r
}
