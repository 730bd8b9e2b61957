package inproc

import "github.com/softmkey/softmkey/roce/packetconn"

// ring is a queue of trains that grows to what it has had to hold. Its bound is
// the room for their buffers, which Conn keeps.
type ring struct {
	slots      []packetconn.Datagrams // a power of two of them
	head, tail uint                   // count on for ever; head <= tail
}

func (r *ring) len() int { return int(r.tail - r.head) }

func (r *ring) push(d packetconn.Datagrams) {
	if r.len() == len(r.slots) {
		r.grow()
	}
	r.slots[r.tail&uint(len(r.slots)-1)] = d
	r.tail++
}

// pop returns the oldest train; the ring must not be empty.
func (r *ring) pop() packetconn.Datagrams {
	s := &r.slots[r.head&uint(len(r.slots)-1)]
	d := *s
	*s = packetconn.Datagrams{}
	r.head++
	return d
}

func (r *ring) grow() {
	slots := make([]packetconn.Datagrams, max(16, 2*len(r.slots)))
	n := uint(0)
	for r.len() > 0 {
		slots[n] = r.pop()
		n++
	}
	r.slots, r.head, r.tail = slots, 0, n
}

// pool keeps buffers of at least one size that are not in use. The last one put
// in comes out first, because it is the most likely to be in the cache. It needs
// no bound: no more buffers exist than were in the queue at one time.
type pool struct {
	size int
	free [][]byte
}

// get returns a buffer, or nil if one must be made.
func (p *pool) get() []byte {
	n := len(p.free)
	if n == 0 {
		return nil
	}
	b := p.free[n-1]
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	return b
}

func (p *pool) put(b []byte) { p.free = append(p.free, b) }
