package roce

import (
	"slices"
	"sync"
	"sync/atomic"
)

// packetCost is added to the bytes of each packet that is on its way: headers
// and what the system needs beside them to keep a datagram waiting in a socket.
const packetCost = 256

// A window bounds the bytes in flight between here and one peer, of all QPs together.
// Its limit follows what the path delivers (see [congestion]).
//
// QPs that find it full wait in order and are let in as it empties.
type window struct {
	used  atomic.Int64
	limit atomic.Int64
	max   int64 // of the limit, on a path without delay

	waiting atomic.Int32 // length of waiters
	mu      sync.Mutex   // guards the following fields
	waiters []waiter
	congestion
	credit   int64 // bytes that may be sent at once, on a path with delay
	creditAt int64 // when credit was last added

	lossy atomic.Bool // something was lost lately: everything delivered is counted
}

// A waiter is a QP that found no room for n.
type waiter struct {
	q    *QP
	n    int64
	flag *bool // q's, guarded by the window's lock
}

func (w *window) init(limit, maximum int64) {
	w.max = max(maximum, minWindow)
	w.slow = maxPathWindow
	w.limit.Store(max(limit, minWindow))
}

// room reports whether n more fit. Something always fits an empty window.
func (w *window) room(n int64) bool {
	used := w.used.Load()
	return used <= 0 || used+n <= w.limit.Load()
}

// give takes n off: they arrived, or are taken for lost. It returns a QP that
// waited, if now is its time.
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

// wait makes q wait for room for n, unless that has come up since it asked. The
// flag says whether q waits already.
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

// drop takes q, if it waits, off the list, and returns the QP whose time is
// now.
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

// A path with delay holds more than a socket buffer does: the limit may grow up to
// maxPathWindow there, by windowPerRTT for each nanosecond of the smoothed round trip.
const (
	maxPathWindow = 32 << 20
	windowPerRTT  = 1 // bytes per nanosecond: 1 GB/s
	longRTT       = 1e6
)

// top returns the largest limit on a path with a round-trip time.
func (w *window) top(rtt int64) int64 {
	if rtt < longRTT {
		return w.max
	}
	return max(w.max, min(w.max+rtt*windowPerRTT, maxPathWindow))
}

// grow is called when n bytes in packets arrived.
func (w *window) grow(now, rtt, n, packets int64) {
	limit := w.limit.Load()
	if limit >= w.max && rtt < longRTT && !w.lossy.Load() {
		return // a path without loss and delay
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	limit = w.limit.Load()
	w.restricted = w.restricted || len(w.waiters) > 0 || w.used.Load()+2*n >= limit
	w.limit.Store(w.onDelivered(now, rtt, n, packets, limit, w.top(rtt)))
	if w.clean() {
		w.start = 0
		w.lossy.Store(false)
	}
}

// cut is called when packets were lost.
func (w *window) cut(now, rtt, packets int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossy.Store(true)
	w.limit.Store(w.onLost(now, rtt, packets, w.limit.Load()))
}

// notified is called when a congestion notification arrived.
func (w *window) notified(now, rtt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Store(w.onCNP(now, rtt, w.limit.Load()))
}

// Pacing spreads what the window allows over the round trip, on paths with delay. On
// others acknowledgements come often enough for that, and timers are too coarse.
const (
	paceBurst = 2e6   // ns of sending that may leave at once
	paceWait  = 0.5e6 // ns of sending to wait for
)

// pace takes n bytes that are to be sent from the credit. It returns 0 if they may be
// sent now, and otherwise for how long to wait.
func (w *window) pace(now, rtt, n int64) (wait int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.limit.Load()
	gain := 1.25
	if limit < w.slow {
		gain = 2
	}
	rate := gain * float64(limit) / float64(rtt) // bytes per nanosecond
	burst := max(int64(rate*paceBurst), minWindow)
	if w.creditAt == 0 {
		w.credit = burst
	} else {
		w.credit = min(w.credit+int64(rate*float64(now-w.creditAt)), burst)
	}
	w.creditAt = now
	if w.credit > 0 {
		w.credit -= n
		return 0
	}
	return int64(float64(-w.credit)/rate + paceWait)
}
