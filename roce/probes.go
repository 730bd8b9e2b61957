package roce

import "time"

// probes decides when to retransmit the oldest packet because no answer came for about a
// round trip. A probe uses up no retry.
type probes struct {
	from    int64 // start of the wait for the next probe
	backoff uint8 // probes since una last advanced
	due     bool  // send a probe
	sent    bool  // packet psn was sent as a probe
	alone   uint8 // times in a row that exactly a probe was acknowledged
	psn     uint32
}

// Probes per full timeout: at least leastProbes, and up to probeParts if the round trip
// is short.
const (
	leastProbes = 4
	probeParts  = 16
)

// progressed records that una advanced. It reports whether una advanced by
// exactly the probe. before is una before the advance.
func (p *probes) progressed(before, una uint32, now int64) (alone bool) {
	alone = p.sent && before == p.psn && una == psnAdd(p.psn, 1)
	if p.alone++; !alone {
		p.alone = 0
	}
	p.from, p.backoff, p.sent = now, 0, false
	return alone
}

// wait starts the wait for the next probe.
func (p *probes) wait(now int64) { p.from = now }

// fire makes a probe due.
func (p *probes) fire(now int64) {
	p.from = now
	p.backoff++
	p.due = true
}

// done records that the probe was sent, or is not needed.
func (p *probes) done() { p.due = false }

// single reports whether the probe that is due is one packet, with no grant and no other packet beside
// it. If the requester sent an even number of packets with every probe, a line that loses every second
// packet would lose the same one of them each time, perhaps the only one that matters.
func (p *probes) single() bool { return p.due && p.backoff%singleProbe == 0 }

// Each singleProbe-th probe is a single packet. After it, such a line loses the other packets of the
// probes that follow.
const singleProbe = 5

// put records that packet psn was sent as the probe.
func (p *probes) put(psn uint32) { p.due, p.sent, p.psn = false, true, psn }

// after returns the time of the next probe. timeout is the full timeout, or 0.
// A peer with selective repeat gets more probes after a full timeout without
// progress (often): on a line that loses bursts in both directions, each probe is another
// chance. Another peer does not, because it may answer each one with many responses.
func (p *probes) after(rtt *roundTrips, timeout int64, often bool) int64 {
	pto := rtt.timeout()
	if timeout != 0 && often {
		return p.from + min(pto, timeout/probeParts)
	}
	limit := int64(time.Second)
	if timeout != 0 {
		limit = timeout / probeParts
		if !rtt.sampled {
			limit = timeout / leastProbes // the round trip may be long
		}
		pto = min(pto, timeout/leastProbes)
	}
	return p.from + max(pto, min(pto<<min(p.backoff, 16), limit))
}

// copyArrived puts off the next probe if a standard peer is still sending the
// responses of a READ that was requested more than once. It executes the copies
// one after the other. Another probe would add another copy behind them. If
// probes came faster than copies are executed, the peer would never reach the
// outstanding request. A copy of the READ that is outstanding puts the probe
// off only while it arrives without gaps, and for a short time: if packets are
// lost, the response of una may be one of them.
//
// older reports whether the response belongs to a READ before the outstanding one, follows whether
// it has the PSN after that of the last copy, and next is the time of the next probe.
func (p *probes) copyArrived(older, follows bool, next, now int64) {
	if older {
		p.from = now
	} else if follows {
		wait := next - p.from
		p.from = max(p.from, now-wait+wait/copyParts)
	}
}

// copyParts is the part of the time to the next probe, as a divisor, in which a copy counts as
// still arriving after its last packet.
const copyParts = 16
