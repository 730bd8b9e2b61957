package roce

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
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
		e.out.init(p.outLimit)
		e.in.init(p.inLimit)
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
func (p *peer) arrived(f *inFlight, out, in, size int64) (r released) {
	f.add(-out, -in)
	if out != 0 {
		p.out.grow(out, size)
		r[0] = p.out.give(out)
	}
	if in != 0 {
		p.in.grow(in, size)
		r[1] = p.in.give(in)
	}
	return r
}

// lostAll reports to the windows that everything in flight was lost.
func (p *peer) lostAll(f *inFlight, trip, now int64) {
	if f.in > 0 {
		p.in.cut(now, trip)
	}
	if f.out > 0 {
		p.out.cut(now, trip)
	}
}

// release removes everything from the windows.
func (p *peer) release(f *inFlight) (r released) {
	out, in := f.out, f.in
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
			q.req.flight.blocked = true
			return false
		}
	}
	// Half of a READ must fit, so that READs fill the window on average.
	for w, half := &p.in, in/2; in != 0 && !w.room(half); {
		if w.wait(q, half, &q.waitsIn) {
			q.req.flight.blocked = true
			return false
		}
	}
	return true
}

// A sharedWindow is a [congestion.Window] that the QPs of all connections to a peer share: it counts the bytes
// in flight, and has a lock. QPs that find it full wait in a queue and are released in order.
type sharedWindow struct {
	used  atomic.Int64
	limit atomic.Int64 // that of window

	waiting atomic.Int32 // number of waiters
	mu      sync.Mutex   // guards the following fields, and writes of limit, open and trip
	waiters []waiter
	window  congestion.Window

	// open says that the limit is at its largest, and trip is the shortest round trip, so that most events need no lock.
	open atomic.Bool
	trip atomic.Int64
}

// A waiter is a QP that waits for room for n bytes.
type waiter struct {
	q    *QP
	n    int64
	flag *bool // q.waitsOut or q.waitsIn, guarded by the window's lock
}

func (w *sharedWindow) init(most int64) {
	w.window = congestion.New(most)
	w.changed()
}

// changed copies what others read without the lock from window.
func (w *sharedWindow) changed() {
	w.limit.Store(w.window.Limit())
	w.open.Store(w.window.Open())
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

// grow records that n bytes arrived, in full packets of a size.
func (w *sharedWindow) grow(n, size int64) {
	if w.open.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiters) > 0 || w.used.Load()+2*n >= w.window.Limit() {
		w.window.Arrived(n, size)
		w.changed()
	}
}

// cut records that packets were lost.
func (w *sharedWindow) cut(now, trip int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.window.Lost(now, trip)
	w.changed()
}

// notified records that a congestion notification arrived.
func (w *sharedWindow) notified(now, trip int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.window.Notified(now, trip)
	w.changed()
}

// measured records a round trip.
func (w *sharedWindow) measured(trip int64) {
	if shortest := w.trip.Load(); shortest != 0 && trip >= shortest {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.window.Measured(trip)
	w.trip.Store(trip)
	w.changed()
}

// part returns the number of responses, each of cost size, that one part of a READ asks for. reads is the number of
// READs that may be outstanding. Several parts fit the window, so that the next one is requested before the answer to this
// one ends.
func (w *sharedWindow) part(size, reads int64) int64 {
	if w.open.Load() {
		return maxResponses // nothing is known that limits a READ
	}
	return max(w.limit.Load()/size/min(reads, mostParts), leastPart)
}

// state returns a snapshot of the window.
func (w *sharedWindow) state() rdma.WindowState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rdma.WindowState{Limit: w.limit.Load(), InFlight: w.used.Load(), Waiting: len(w.waiters), Cuts: w.window.Cuts()}
}
