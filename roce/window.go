package roce

import (
	"slices"
	"sync"
	"sync/atomic"
)

// packetCost is added to the bytes of each packet that is on its way: headers
// and what the system needs beside them to keep a datagram waiting in a socket.
const packetCost = 256

// A window bounds the bytes that are on their way between here and one peer, of
// all QPs together: so many have room in the socket buffer in which they may
// have to wait. Loss halves it, acknowledgements let it grow again: slowly once
// it is past half of what was lost at.
//
// QPs that find it full wait in order and are let in as it empties.
type window struct {
	used  atomic.Int64
	limit atomic.Int64
	max   int64

	waiting atomic.Int32 // length of waiters
	mu      sync.Mutex   // guards the following fields
	waiters []waiter
	slow    int64 // from here on growth is slow
	cutAt   int64 // when the limit was last reduced
}

// A waiter is a QP that found no room for n.
type waiter struct {
	q    *QP
	n    int64
	flag *bool // q's, guarded by the window's lock
}

func (w *window) init(limit, maximum int64) {
	w.max = max(maximum, minWindow)
	w.slow = w.max
	w.limit.Store(max(limit, minWindow))
	w.cutAt = -1 << 62
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

// grow is called when n arrived.
func (w *window) grow(n int64) {
	limit := w.limit.Load()
	if limit >= w.max {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	limit = w.limit.Load()
	if limit >= w.slow {
		n = max(1, n*(4096+packetCost)/limit)
	}
	w.limit.Store(min(limit+n, w.max))
}

// cut is called when something was lost, at the time now; what was lost within
// one round trip of rtt counts once.
func (w *window) cut(now, rtt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now-w.cutAt < rtt {
		return
	}
	w.cutAt = now
	limit := max(w.limit.Load()/2, minWindow)
	w.slow = limit
	w.limit.Store(limit)
}
