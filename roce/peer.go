package roce

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// A peer is a host that QPs are connected to. The windows belong to the host rather than
// to a QP, because all QPs share the host's socket and its receive buffer.
type peer struct {
	addr  netip.Addr
	qps   int          // number of QPs connected to the host, guarded by the port's lock
	out   sharedWindow // requests in flight to the host
	in    sharedWindow // READ responses in flight from the host
	heard atomic.Int64 // time of its last acknowledgement
	seen  evidence     // of why it does not answer
}

// acquirePeer returns the peer with an address and counts one more QP for it.
func (p *Port) acquirePeer(addr netip.Addr) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.peers[addr]
	if e == nil {
		e = &peer{addr: addr}
		e.out.init(min(p.outLimit, firstWindow), p.outLimit)
		e.in.init(min(p.inLimit, firstWindow), p.inLimit)
		e.out.window.pacing, e.out.window.yields = true, true // the peer sends the responses
		p.peers[addr] = e
	}
	e.qps++
	return e
}

// releasePeer removes one QP from a peer, and the peer with its last QP.
func (p *Port) releasePeer(e *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.qps--; e.qps == 0 {
		delete(p.peers, e.addr)
	}
}

// A released holds the waiting QP of each window that may send because its
// window has room again, or nil.
type released [2]*QP

// sent counts a packet that was sent.
func (p *peer) sent(f *inFlight, out, in int64) {
	p.out.used.Add(out)
	p.in.used.Add(in)
	f.add(out, in)
}

// arrived removes bytes that arrived from the windows, and lets the windows grow. size is
// the cost of a full packet.
func (p *peer) arrived(f *inFlight, out, in, size, rtt, now int64) (r released) {
	f.add(-out, -in)
	if out != 0 {
		p.out.grow(now, rtt, out, max(1, out/size))
		r[0] = p.out.give(out)
	}
	if in != 0 {
		p.in.grow(now, rtt, in, max(1, in/size))
		r[1] = p.in.give(in)
	}
	return r
}

// reported removes the bytes of packets from the send window that a SelectiveAck reported.
func (p *peer) reported(f *inFlight, out, packets, rtt, now int64) *QP {
	f.add(-out, 0)
	p.out.grow(now, rtt, out, packets)
	return p.out.give(out)
}

// lost removes the bytes of packets from the send window that were lost one by one.
func (p *peer) lost(f *inFlight, out, packets, rtt, now int64) *QP {
	p.out.cut(now, rtt, packets)
	f.add(-out, 0)
	return p.out.give(out)
}

// lostAll reports to the windows that everything in flight was lost.
func (p *peer) lostAll(f *inFlight, size, rtt, now int64) {
	if f.in > 0 {
		p.in.cut(now, rtt, max(1, f.in/size))
	}
	if f.out > 0 {
		p.out.cut(now, rtt, max(1, f.out/size))
	}
}

// release removes everything from the windows.
func (p *peer) release(f *inFlight) released { return p.takenBack(f, f.out, f.in) }

// takenBack removes bytes from the windows that are to be sent again.
func (p *peer) takenBack(f *inFlight, out, in int64) (r released) {
	out, in = min(out, f.out), min(in, f.in)
	f.add(-out, -in)
	if out != 0 {
		r[0] = p.out.give(out)
	}
	if in != 0 {
		r[1] = p.in.give(in)
	}
	return r
}

// leave removes q from those that wait for room.
func (p *peer) leave(q *QP) released {
	return released{p.out.drop(q, &q.waitsOut), p.in.drop(q, &q.waitsIn)}
}

// room reports whether the windows have room for a packet of q. If not, q waits
// for room. limit is the limit of the send window.
func (p *peer) room(q *QP, out, in, limit int64) bool {
	for w := &p.out; out != 0; limit = w.limit.Load() {
		if used := w.used.Load(); used <= 0 || used+out <= limit {
			break
		}
		if w.wait(q, out, &q.waitsOut) {
			q.req.flight.block()
			return false
		}
	}
	for w := &p.in; in != 0 && !w.room(in); {
		if w.wait(q, in, &q.waitsIn) {
			q.req.flight.block()
			return false
		}
	}
	return true
}

// paced reports whether pacing allows sending n bytes now. If not, it sets the time of
// the next attempt.
func (p *peer) paced(f *inFlight, n, rtt, now int64) bool {
	if p.out.trip.Load() < longRTT {
		return true
	}
	if wait := p.out.pace(now, rtt, n); wait > 0 {
		f.paceUntil(now + wait)
		return false
	}
	return true
}

// A sharedWindow is a [window] that the QPs of all connections to a peer share: it counts the bytes
// in flight, and has a lock. QPs that find it full wait in a queue and are released in order.
type sharedWindow struct {
	used  atomic.Int64
	limit atomic.Int64

	waiting atomic.Int32 // number of waiters
	mu      sync.Mutex   // guards the following fields, and writes of limit
	waiters []waiter
	window  window

	// trip is the shortest round trip, and tripUntil the time up to which it is valid. They and lossy
	// are copies of what window has, so that most samples need no lock.
	trip, tripUntil atomic.Int64
	lossy           atomic.Bool
}

// A waiter is a QP that waits for room for n bytes.
type waiter struct {
	q    *QP
	n    int64
	flag *bool // q.waitsOut or q.waitsIn, guarded by the window's lock
}

func (w *sharedWindow) init(limit, maximum int64) {
	w.window.init(maximum)
	w.limit.Store(max(limit, minWindow))
}

// room reports whether n more bytes fit. An empty window has room for any number.
func (w *sharedWindow) room(n int64) bool {
	used := w.used.Load()
	return used <= 0 || used+n <= w.limit.Load()
}

// give removes n bytes, which arrived or were lost. It returns a waiting QP if the window
// has room for it.
func (w *sharedWindow) give(n int64) *QP {
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
func (w *sharedWindow) wait(q *QP, n int64, flag *bool) (waits bool) {
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
func (w *sharedWindow) drop(q *QP, flag *bool) *QP {
	w.mu.Lock()
	if *flag {
		*flag = false
		w.waiters = slices.DeleteFunc(w.waiters, func(e waiter) bool { return e.q == q })
		w.waiting.Store(int32(len(w.waiters)))
	}
	w.mu.Unlock()
	return w.give(0)
}

// grow records that n bytes in packets arrived. rtt is the smoothed round trip of their QP, or 0
// before its first sample.
func (w *sharedWindow) grow(now, rtt, n, packets int64) {
	if w.limit.Load() >= w.window.max && w.trip.Load() < longRTT && !w.lossy.Load() {
		return // the limit is at its largest, and no loss is being measured
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := w.limit.Load()
	full := len(w.waiters) > 0 || w.used.Load()+2*n >= limit
	w.limit.Store(w.window.arrived(now, rtt, n, packets, limit, full))
	w.lossy.Store(w.window.lossy)
}

// cut records that packets were lost. rtt is as for grow.
func (w *sharedWindow) cut(now, rtt, packets int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Store(w.window.dropped(now, rtt, packets, w.limit.Load()))
	w.lossy.Store(true)
}

// notified records that a congestion notification arrived.
func (w *sharedWindow) notified(now, rtt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit.Store(w.window.controller().notified(now, rtt, w.limit.Load()))
}

// measured records a round trip.
func (w *sharedWindow) measured(now, rtt int64) {
	if trip := w.trip.Load(); trip != 0 && rtt > trip && now < w.tripUntil.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	trip, until := w.window.measured(now, rtt)
	w.trip.Store(trip)
	w.tripUntil.Store(until)
}

// part returns the number of responses of one part of a READ, as [window.part] does.
func (w *sharedWindow) part(size, reads int64) int64 {
	if w.limit.Load() >= w.window.max && !w.lossy.Load() {
		return maxResponses // nothing is known that limits a READ
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.window.part(w.limit.Load(), size, reads)
}

// pace is [window.pace].
func (w *sharedWindow) pace(now, rtt, n int64) (wait int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.window.pace(now, rtt, n, w.limit.Load())
}

// state returns a snapshot of the window.
func (w *sharedWindow) state() WindowState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WindowState{
		Limit: w.limit.Load(), InFlight: w.used.Load(), Waiting: len(w.waiters),
		Cuts: w.window.cuts, Restored: w.window.restored, Loss: w.window.lastLoss, LineLoss: w.window.lineLoss,
	}
}
