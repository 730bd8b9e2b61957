package roce

// packetCost is added to the size of each packet in flight. It stands for headers and for
// the system's overhead per datagram in a socket buffer.
const packetCost = 256

// minWindow is the smallest limit of a window: two packets of the largest path MTU. firstWindow is
// the limit before the path is known.
const (
	minWindow   = 2 * (largestMTU + packetCost)
	firstWindow = 256 << 10
)

// A window decides how many bytes may be in flight on a path in one direction, and when. One controller
// at a time computes the limit from what arrives and what is lost. It knows no QP, no peer, no lock and no
// clock; see [sharedWindow].
type window struct {
	max    int64 // largest limit on a path without delay
	lossy  bool  // packets were lost recently, so every delivery is measured
	pacing bool  // packets are paced on a path with delay: they leave here, not at the peer
	congestion
	path  pathModel
	paced bucket // on a path with delay
}

// A controller computes the limit of a window. Times are in nanoseconds. rtt is the smoothed round trip of
// the QP concerned, or the last one that was known, and limit the present limit. All return the new limit.
type controller interface {
	// arrived records that n bytes in packets arrived.
	arrived(now, rtt, n, packets, limit int64) int64
	// dropped records that packets were lost.
	dropped(now, rtt, packets, limit int64) int64
	// notified records that a congestion notification arrived.
	notified(now, rtt, limit int64) int64
}

// controller returns the controller of the path as it is now: the model of a path with delay, if this side
// can pace, and the loss otherwise.
func (w *window) controller() controller {
	if w.pacing && w.path.long() {
		return byModel{w}
	}
	return byLoss{w}
}

func (w *window) init(maximum int64) {
	w.max = max(maximum, minWindow)
	w.slow = maxPathWindow
}

// arrived records that n bytes in packets have arrived: at the peer, or here those that the peer sent. limit is the present
// limit. full says that the window had no room for more, and rtt is 0 if the QP has no sample of a round trip yet.
func (w *window) arrived(now, rtt, n, packets, limit int64, full bool) int64 {
	w.restricted = w.restricted || full
	return w.controller().arrived(now, w.roundTrip(rtt), n, packets, limit)
}

// dropped records that packets were lost. rtt is as for arrived.
func (w *window) dropped(now, rtt, packets, limit int64) int64 {
	w.lossy = true
	return w.controller().dropped(now, w.roundTrip(rtt), packets, limit)
}

// byLoss follows the loss of the path, and byModel its model. Both follow notifications.
type (
	byLoss  struct{ *window }
	byModel struct{ *window }
)

func (w byLoss) arrived(now, rtt, n, packets, limit int64) int64 {
	limit = w.onDelivered(now, rtt, n, packets, limit, w.top(), w.path.long())
	if w.clean() {
		w.start, w.lossy = 0, false
	}
	return limit
}

func (w byLoss) dropped(now, rtt, packets, limit int64) int64 {
	return w.onLost(now, rtt, packets, limit)
}

func (w byLoss) notified(now, rtt, limit int64) int64 { return w.onCNP(now, rtt, limit) }

func (w byModel) arrived(now, rtt, n, packets, limit int64) int64 {
	return w.onPaced(now, rtt, n, packets, limit, w.top())
}

func (w byModel) dropped(_, _, packets, limit int64) int64 {
	w.lost += packets
	return limit
}

func (w byModel) notified(now, rtt, limit int64) int64 {
	lower := w.onCNP(now, rtt, limit)
	if lower < limit {
		w.path.slowed(float64(lower) / float64(limit))
	}
	return lower
}

// On a path with delay, more bytes than a socket buffer holds can be in flight.
// The limit may then grow up to maxPathWindow, by windowPerRTT bytes for each
// nanosecond of the smoothed round trip.
const (
	maxPathWindow = 32 << 20
	windowPerRTT  = 1 // bytes per nanosecond: 1 GB/s
	longRTT       = 1e6
)

// top returns the largest limit.
func (w *window) top() int64 {
	if !w.path.long() {
		return w.max
	}
	return max(w.max, min(w.max+w.path.trip*windowPerRTT, maxPathWindow))
}

// A part of a READ is at most half of the window, so that the next part is requested before the answer
// to this one ends. If the line loses packets, a part is also so short that about partLosses of its
// responses are lost, unless so short parts could not fill the path.
const partLosses = 2

// part returns the number of responses, each of cost size, that one part of a READ asks for. reads
// is the number of READs that may be outstanding. The limit is not at its largest, or the line loses packets.
func (w *window) part(limit, size, reads int64) int64 {
	n := limit / size / min(reads, 2)
	if w.lossy && w.loss > 0 {
		n = min(n, max(int64(partLosses/w.loss), int64(w.best*float64(w.path.trip))/size/reads))
	}
	return max(n, leastPart)
}

// measured records a round trip. It returns the shortest one, and the time up to which a longer sample
// changes nothing.
func (w *window) measured(now, rtt int64) (trip, until int64) {
	w.path.measured(now, rtt)
	w.path.expired(now)
	until = w.path.seen + tripLasts
	if w.path.phase == emptying {
		until = now
	}
	return w.path.trip, until
}

// pace spreads packets over time, at the rate of the path's model. It returns 0 if a packet of n bytes may be sent
// now and counts the packet; otherwise it returns the time to wait in nanoseconds. Only paths
// with delay are paced. On other paths acknowledgements arrive often enough to spread the
// packets, and timers are too coarse.
func (w *window) pace(now, rtt, n, limit int64) (wait int64) {
	rtt = max(rtt, w.path.trip)           // that of a QP without a sample is a guess
	rate := w.path.gain() * w.path.rate() // bytes per nanosecond
	if w.path.phase == starting {
		rate = max(rate, 2*float64(limit)/float64(rtt))
	}
	rate = max(rate, float64(minWindow)/float64(rtt))
	if wait = w.paced.wait(now, rate, max(int64(rate*paceBurst), minWindow)); wait == 0 {
		w.paced.credit -= n
	} else {
		w.restricted = true
	}
	return wait
}
