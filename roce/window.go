package roce

import (
	"slices"
	"sync"
	"sync/atomic"
)

// packetCost is added to the size of each packet in flight. It stands for headers and for
// the system's overhead per datagram in a socket buffer.
const packetCost = 256

// A window limits the bytes in flight from or to one peer, over all QPs. Its limit adapts
// to the path (see [congestion]).
//
// QPs that find the window full wait in a queue and are released in order.
type window struct {
	used  atomic.Int64
	limit atomic.Int64
	max   int64 // largest limit on a path without delay

	waiting atomic.Int32 // number of waiters
	mu      sync.Mutex   // guards the following fields
	waiters []waiter
	congestion
	pacing bool      // packets are paced on a path with delay: they leave here, not at the peer
	paced  bucket    // on a path with delay
	path   pathModel // the same

	// trip is the shortest round trip, and tripUntil the time up to which it is valid. They
	// are copies of what path has, so that most samples need no lock.
	trip, tripUntil atomic.Int64

	lossy atomic.Bool // packets were lost recently, so every delivery is measured
}

// A waiter is a QP that waits for room for n bytes.
type waiter struct {
	q    *QP
	n    int64
	flag *bool // q.waitsOut or q.waitsIn, guarded by the window's lock
}

func (w *window) init(limit, maximum int64) {
	w.max = max(maximum, minWindow)
	w.slow = maxPathWindow
	w.limit.Store(max(limit, minWindow))
}

// room reports whether n more bytes fit. An empty window has room for any number.
func (w *window) room(n int64) bool {
	used := w.used.Load()
	return used <= 0 || used+n <= w.limit.Load()
}

// give removes n bytes, which arrived or were lost. It returns a waiting QP if the window
// has room for it.
func (w *window) give(n int64) *QP {
	if n != 0 {
		w.used.Add(-n)
	}
	if w.waiting.Load() == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) == 0 || !w.room(w.waiters[0].n) {
		return nil
	}
	q := w.waiters[0].q
	*w.waiters[0].flag = false
	w.waiters[0] = waiter{}
	w.waiters = w.waiters[1:]
	w.waiting.Store(int32(len(w.waiters)))
	return q
}

// wait adds q to the waiters for n bytes, unless room has appeared since q
// checked. *flag is true while q is among the waiters.
func (w *window) wait(q *QP, n int64, flag *bool) (waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.room(n) {
		return false
	}
	if !*flag {
		*flag = true
		w.waiters = append(w.waiters, waiter{q, n, flag})
		w.waiting.Store(int32(len(w.waiters)))
	}
	return true
}

// drop removes q from the waiters, and returns the next QP if the window has room for it.
func (w *window) drop(q *QP, flag *bool) *QP {
	w.mu.Lock()
	if *flag {
		*flag = false
		w.waiters = slices.DeleteFunc(w.waiters, func(e waiter) bool { return e.q == q })
		w.waiting.Store(int32(len(w.waiters)))
	}
	w.mu.Unlock()
	return w.give(0)
}

// On a path with delay, more bytes than a socket buffer holds can be in flight.
// The limit may then grow up to maxPathWindow, by windowPerRTT bytes for each
// nanosecond of the smoothed round trip.
const (
	maxPathWindow = 32 << 20
	windowPerRTT  = 1 // bytes per nanosecond: 1 GB/s
	longRTT       = 1e6
)

// A part of a READ is at most half of the window, so that the next part is requested before the answer
// to this one ends. If the line loses packets, a part is also so short that about partLosses of its
// responses are lost, unless so short parts could not fill the path.
const partLosses = 2

// part returns the number of responses, each of cost size, that one part of a READ asks for. reads
// is the number of READs that may be outstanding.
func (w *window) part(size, reads int64) int64 {
	limit, lossy := w.limit.Load(), w.lossy.Load()
	if limit >= w.max && !lossy {
		return maxResponses // nothing is known that limits a READ
	}
	n := limit / size / min(reads, 2)
	if lossy {
		w.mu.Lock()
		if w.loss > 0 {
			n = min(n, max(int64(partLosses/w.loss), int64(w.best*float64(w.trip.Load()))/size/reads))
		}
		w.mu.Unlock()
	}
	return max(n, leastPart)
}

// top returns the largest limit.
func (w *window) top() int64 {
	if !w.path.long() {
		return w.max
	}
	return max(w.max, min(w.max+w.path.trip*windowPerRTT, maxPathWindow))
}

// measured records a round trip.
func (w *window) measured(now, rtt int64) {
	if trip := w.trip.Load(); trip != 0 && rtt > trip && now < w.tripUntil.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.path.measured(now, rtt)
	w.path.expired(now)
	until := w.path.seen + tripLasts
	if w.path.phase == emptying {
		until = now
	}
	w.trip.Store(w.path.trip)
	w.tripUntil.Store(until)
}

// grow records that n bytes in packets arrived. rtt is the smoothed round trip of their QP, or 0
// before its first sample.
func (w *window) grow(now, rtt, n, packets int64) {
	limit := w.limit.Load()
	if limit >= w.max && w.trip.Load() < longRTT && !w.lossy.Load() {
		return // the limit is at its largest, and no loss is being measured
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	limit, rtt = w.limit.Load(), w.roundTrip(rtt)
	w.restricted = w.restricted || len(w.waiters) > 0 || w.used.Load()+2*n >= limit
	if w.pacing && w.path.long() {
		w.limit.Store(w.onPaced(now, rtt, n, packets, limit, w.top()))
		return
	}
	w.limit.Store(w.onDelivered(now, rtt, n, packets, limit, w.top(), w.path.long()))
	if w.clean() {
		w.start = 0
		w.lossy.Store(false)
	}
}

// cut records that packets were lost. rtt is as for grow.
func (w *window) cut(now, rtt, packets int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy.Store(true)
	if w.pacing && w.path.long() {
		w.lost += packets
		return
	}
	w.limit.Store(w.onLost(now, w.roundTrip(rtt), packets, w.limit.Load()))
}

// notified records that a congestion notification arrived.
func (w *window) notified(now, rtt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.limit.Load()
	limit := w.onCNP(now, rtt, before)
	if limit < before {
		w.path.slowed(float64(limit) / float64(before))
	}
	w.limit.Store(limit)
}

// pace spreads packets over time, at the rate of the path's model. It returns 0 if a packet of n bytes may be sent
// now and counts the packet; otherwise it returns the time to wait in nanoseconds. Only paths
// with delay are paced. On other paths acknowledgements arrive often enough to spread the
// packets, and timers are too coarse.
func (w *window) pace(now, rtt, n int64) (wait int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rtt = max(rtt, w.path.trip)           // that of a QP without a sample is a guess
	rate := w.path.gain() * w.path.rate() // bytes per nanosecond
	if w.path.phase == starting {
		rate = max(rate, 2*float64(w.limit.Load())/float64(rtt))
	}
	rate = max(rate, float64(minWindow)/float64(rtt))
	if wait = w.paced.wait(now, rate, max(int64(rate*paceBurst), minWindow)); wait == 0 {
		w.paced.credit -= n
	} else {
		w.restricted = true
	}
	return wait
}
