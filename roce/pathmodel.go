package roce

// pathModel is a model of a path with delay, as in BBR (draft-ietf-ccwg-bbr): the rate at which
// the path delivers, and its round trip when its queues are empty. Their product is what the
// path itself holds; more than that waits in a queue. Packets are paced at the rate, and the
// window is twice the product. Loss has no part in it, because a line loses packets at any rate.
//
// A round lasts a round trip. Each round gives a sample of the rate; the highest of the last
// rateRounds counts. The rate is found by doubling the window until the samples no longer grow,
// which fills the queue; one round below the rate drains it. After that, one round in cycleRounds
// is paced above the rate, to find out whether the path delivers more, and the next one below
// it, which drains the queue again. If the rate has risen, the next round is paced above it, too.
//
// The shortest round trip is valid for tripLasts. If it was not seen again in this time, the window
// is halved for a moment, so that the queues drain and the round trip of the path shows.
type pathModel struct {
	rates  [rateRounds]float64 // delivery rates of the last rounds, in bytes per nanosecond
	rounds uint64              // number of rounds so far

	phase   uint8
	reached float64 // rate in phase starting at which the last growth was seen
	stalls  int     // rounds since the last growth of reached
	rising  bool    // the last round in phase cruising found a higher rate
	until   int64   // end of phase emptying

	trip   int64 // shortest round trip; 0: none was measured
	seen   int64 // time at which a round trip of trip was last measured
	lowest int64 // shortest round trip in phase emptying
}

// Phases of a pathModel.
const (
	starting = iota // the window doubles in each round trip
	draining        // the queue of phase starting drains
	cruising
	emptying // the window is small, to measure the round trip of the path
)

const (
	rateRounds  = 10
	cycleRounds = 8
	tripLasts   = 10e9  // ns
	emptyFor    = 200e6 // ns
	overflow    = 0.15  // loss rate above which a rate that does not grow fills the queue
)

// long reports whether the path has delay.
func (m *pathModel) long() bool { return m.trip >= longRTT }

// rate returns the delivery rate of the path in bytes per nanosecond, or 0.
func (m *pathModel) rate() (best float64) {
	for _, r := range m.rates {
		best = max(best, r)
	}
	return best
}

// holds returns the bytes that the path holds without a queue.
func (m *pathModel) holds() int64 { return int64(m.rate() * float64(m.trip)) }

// measured records a round trip.
func (m *pathModel) measured(now, rtt int64) {
	if m.phase == emptying {
		m.lowest = min(m.lowest, rtt)
	}
	if rtt <= m.trip || m.trip == 0 {
		m.trip, m.seen = rtt, now
	}
}

// ended records the delivery rate and the loss of a round, and moves to the next phase. limited
// means that the path limited the rate, rather than the application.
func (m *pathModel) ended(rate, loss float64, limited bool) {
	if !limited && rate <= m.rate() {
		return // an idle path says nothing about its rate
	}
	before := m.rate()
	m.rounds++
	m.rates[m.rounds%rateRounds] = rate
	switch m.phase {
	case starting:
		if rate > 1.25*m.reached {
			m.reached, m.stalls = rate, 0
		} else if m.stalls++; m.stalls >= 3 || loss > overflow {
			m.phase = draining
		}
	case draining:
		m.phase = cruising
	case cruising:
		m.rising = rate > 1.1*before
	}
}

// expired begins and ends the phase in which the round trip is measured.
func (m *pathModel) expired(now int64) {
	switch {
	case m.phase == emptying && now >= m.until:
		if m.lowest != never {
			m.trip = m.lowest
		}
		m.seen, m.phase = now, cruising
	case m.phase == cruising && now-m.seen > tripLasts:
		m.phase, m.until, m.lowest = emptying, now+max(emptyFor, 2*m.trip), never
	}
}

// slowed reduces the rate to a part of it, because of a congestion notification.
func (m *pathModel) slowed(part float64) {
	for i := range m.rates {
		m.rates[i] *= part
	}
	if m.phase == starting {
		m.phase = cruising
	}
}

// gain returns the pacing rate of the present round as a multiple of the delivery rate.
func (m *pathModel) gain() float64 {
	switch m.phase {
	case starting:
		return 2.77
	case draining:
		return 0.5
	case emptying:
		return 1
	}
	switch {
	case m.rising || m.rounds%cycleRounds == 0:
		return 1.25
	case m.rounds%cycleRounds == 1:
		return 0.75
	}
	return 1
}

// window returns the limit of the window; limit is the present one, and n the bytes that have just
// arrived, if the window or pacing limited them.
func (m *pathModel) window(limit, n int64) int64 {
	switch m.phase {
	case starting:
		return limit + n
	case draining:
		return m.holds()
	case emptying:
		return m.holds() / 2
	}
	return 2 * m.holds()
}
