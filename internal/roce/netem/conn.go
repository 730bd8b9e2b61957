package netem

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// Conn adds faults to the datagrams sent through an inner connection. Received datagrams
// pass unchanged; for faults in both directions, wrap both ends. Its concurrency rules
// are those of the inner connection.
type Conn struct {
	netconn.Conn
	filter func(uint64, netip.AddrPort, []byte) Action
	lost   func(packetconn.Train) // Options.Lost; may be nil

	mu       sync.Mutex // guards the following fields, and keeps the datagrams to inner in order
	faults   Faults
	rng      *rand.Rand
	counters Counters // without Lost
	gone     atomic.Uint64
	closed   bool

	out   []packetconn.Train // parts of the current train
	held  []*parcel          // reordered datagrams that wait to be overtaken, oldest first
	line  []*parcel          // datagrams in flight, by time of arrival
	timer *time.Timer        // fires for the first of held and line; nil if both are empty
	due   time.Time
}

// parcel is a datagram or a part of a train that is held or in flight.
type parcel struct {
	d          packetconn.Train
	due        time.Time
	overtakers int // number of datagrams that must still overtake it
}

// Wrap returns a connection that sends through c with faults. Closing it closes c. Wrap
// panics if a probability of f is negative or if they add up to more than 1.
func Wrap(c packetconn.Conn, seed uint64, f Faults, opts *Options) *Conn {
	w := &Conn{Conn: netconn.Of(c), faults: f.withDefaults(), rng: rand.New(rand.NewPCG(seed, 0))}
	if opts != nil {
		w.filter, w.lost = opts.Filter, opts.Lost
	}
	return w
}

// SetFaults changes the faults from the next datagram on. Faults{Loss: 1} makes a peer
// unreachable.
func (c *Conn) SetFaults(f Faults) {
	f = f.withDefaults()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = f
}

// Counters returns a snapshot of the counters.
func (c *Conn) Counters() Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counters
	n.Lost = c.Lost()
	return n
}

// Lost returns the number of datagrams that were lost, without waiting for a Send.
func (c *Conn) Lost() uint64 { return c.gone.Load() }

// Unwrap returns the inner connection, whose optional abilities c has. The datagrams of a
// group that is joined are received unchanged, as all others.
func (c *Conn) Unwrap() packetconn.Conn { return c.Conn }

// Close closes the inner connection. Datagrams in flight are lost.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.held, c.line = nil, nil
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// Send sends the trains with faults: datagrams may be missing or sent later.
func (c *Conn) Send(trains []packetconn.Train) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	defer c.schedule()
	l := c.Conn.Limits()
	for i := range trains {
		t := &trains[i]
		// Check the whole train, because its parts alone might pass.
		if err := l.Check(c.Conn.LocalAddr().Addr(), t); err != nil {
			return i, err
		}
		err := c.train(t)
		if err == nil {
			err = c.flush()
		}
		if err != nil {
			return i, err
		}
	}
	return len(trains), nil
}

// flush sends the trains collected in c.out.
func (c *Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.Conn.Send(c.out)
	clear(c.out)
	c.out = c.out[:0]
	return err
}

// train chooses the action for each datagram of t. Consecutive datagrams without a fault
// stay together.
func (c *Conn) train(t *packetconn.Train) error {
	first := 0 // start of the run without a fault
	for i := range t.Count() {
		p := t.At(i)
		a := c.decide(t.Addr, p)
		if a != Pass {
			c.run(t, first, i)
			first = i + 1
		}
		switch a {
		case Pass:
			c.counters.Passed++
		case Lose:
			c.gone.Add(1)
			if c.lost != nil {
				if err := c.flush(); err != nil {
					return err
				}
				c.lost(single(t, p))
			}
		case Duplicate:
			c.counters.Duplicated++
			c.run(t, i, i+1)
			c.run(t, i, i+1)
		case Reorder:
			c.counters.Reordered++
			c.hold(single(t, bytes.Clone(p)))
			continue // a reordered datagram overtakes no others
		case Corrupt:
			c.counters.Corrupted++
			c.forward(single(t, c.flip(p)), 0)
		case Truncate:
			c.counters.Truncated++
			c.forward(single(t, p[:c.rng.IntN(len(p))]), 0)
		case Delay:
			c.counters.Delayed++
			c.forward(single(t, p), 1+time.Duration(c.rng.Int64N(int64(c.faults.MaxDelay))))
			continue
		}
		if len(c.held) > 0 && a != Lose {
			if a == Pass {
				c.run(t, first, i+1)
				first = i + 1
			}
			c.overtake()
		}
	}
	c.run(t, first, t.Count())
	return nil
}

func (c *Conn) decide(to netip.AddrPort, p []byte) Action {
	n := c.counters.Datagrams
	c.counters.Datagrams++
	a := Chance
	if c.filter != nil {
		a = c.filter(n, to, p)
	}
	if a == Chance {
		a = c.faults.draw(c.rng)
	}
	if len(p) == 0 && (a == Corrupt || a == Truncate) {
		return Pass // an empty datagram cannot be damaged
	}
	return a
}

// run forwards datagrams [first, end) of t.
func (c *Conn) run(t *packetconn.Train, first, end int) {
	if first >= end {
		return
	}
	d := *t
	d.Swap = false // this Conn may keep the buffer
	if n := t.Count(); first > 0 || end < n {
		d.Buf = t.Buf[first*t.Seg : min(end*t.Seg, len(t.Buf))]
	}
	c.forward(d, 0)
}

// single returns p as a train of one datagram, with t's address.
func single(t *packetconn.Train, p []byte) packetconn.Train {
	return packetconn.Train{Addr: t.Addr, Buf: p, Seg: len(p), TOS: t.TOS, Route: t.Route}
}

// flip returns a copy of p with up to Flips different bits flipped.
func (c *Conn) flip(p []byte) []byte {
	p = bytes.Clone(p)
	bits := 8 * len(p)
	n := min(1+c.rng.IntN(c.faults.Flips), bits)
	var done []int
	for len(done) < n {
		if b := c.rng.IntN(bits); !slices.Contains(done, b) {
			p[b/8] ^= 1 << (b % 8)
			done = append(done, b)
		}
	}
	return p
}

// hold keeps d until enough datagrams have overtaken it.
func (c *Conn) hold(d packetconn.Train) {
	c.held = append(c.held, &parcel{d: d, due: time.Now().Add(hold), overtakers: 1 + c.rng.IntN(mostOvertakers)})
}

// overtake counts a passing datagram for each held one, and forwards those that have been
// overtaken often enough.
func (c *Conn) overtake() {
	c.held = slices.DeleteFunc(c.held, func(p *parcel) bool {
		p.overtakers--
		if p.overtakers > 0 {
			return false
		}
		c.forward(p.d, 0)
		return true
	})
}

// forward sends d to the inner connection: at once, or a copy after the network's latency
// plus more.
func (c *Conn) forward(d packetconn.Train, more time.Duration) {
	wait := c.faults.Latency + more
	if wait <= 0 {
		c.out = append(c.out, d)
		return
	}
	d.Buf = bytes.Clone(d.Buf)
	due := time.Now().Add(wait)
	at := sort.Search(len(c.line), func(i int) bool { return c.line[i].due.After(due) })
	c.line = slices.Insert(c.line, at, &parcel{d: d, due: due})
}

// schedule sets the timer for the next held or delayed datagram.
func (c *Conn) schedule() {
	var next time.Time
	if len(c.line) > 0 {
		next = c.line[0].due
	}
	for _, p := range c.held {
		if next.IsZero() || p.due.Before(next) {
			next = p.due
		}
	}
	if c.timer != nil {
		if next.Equal(c.due) {
			return
		}
		c.timer.Stop()
		c.timer = nil
	}
	if !next.IsZero() && !c.closed {
		c.due = next
		c.timer = time.AfterFunc(time.Until(next), c.arrive)
	}
}

// arrive runs when a datagram is due.
func (c *Conn) arrive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if c.timer != nil {
		c.timer.Stop() // the timer may have been replaced while this call waited for the lock
		c.timer = nil
	}
	now := time.Now()
	c.held = slices.DeleteFunc(c.held, func(p *parcel) bool {
		if p.due.After(now) {
			return false
		}
		c.forward(p.d, 0)
		return true
	})
	for len(c.line) > 0 && !c.line[0].due.After(now) {
		c.out = append(c.out, c.line[0].d)
		c.line[0] = nil
		c.line = c.line[1:]
	}
	for i := range c.out {
		if _, err := c.Conn.Send(c.out[i : i+1]); err != nil {
			c.counters.Failed += uint64(c.out[i].Count())
		}
	}
	clear(c.out)
	c.out = c.out[:0]
	c.schedule()
}
