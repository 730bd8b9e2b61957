package inproc

import "github.com/softmkey/softmkey/packetconn"

// ring is a queue of trains that grows as needed. The Conn bounds it by the size of the
// queued buffers.
type ring struct {
	slots      []packetconn.Train // the length is a power of two
	head, tail uint               // positions modulo the length; head <= tail
}

func (r *ring) len() int { return int(r.tail - r.head) }

func (r *ring) push(d packetconn.Train) {
	if r.len() == len(r.slots) {
		r.grow()
	}
	r.slots[r.tail&uint(len(r.slots)-1)] = d
	r.tail++
}

// pop returns the oldest train; the ring must not be empty.
func (r *ring) pop() packetconn.Train {
	s := &r.slots[r.head&uint(len(r.slots)-1)]
	d := *s
	*s = packetconn.Train{}
	r.head++
	return d
}

func (r *ring) grow() {
	slots := make([]packetconn.Train, max(16, 2*len(r.slots)))
	n := uint(0)
	for r.len() > 0 {
		slots[n] = r.pop()
		n++
	}
	r.slots, r.head, r.tail = slots, 0, n
}

// pool keeps unused buffers of at least size bytes. It returns the most recent one first,
// because that one is most likely in the cache. It needs no limit: there are never more
// buffers than were queued at one time.
type pool struct {
	size int
	free [][]byte
}

// get returns a buffer, or nil if the pool is empty.
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
