package netem

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Link describes one direction of a network path: a transmitter with a queue, followed by
// a line with faults. The zero value delivers every datagram at once.
type Link struct {
	// Rate is the speed of the transmitter in bits per second. 0 means unlimited.
	Rate int64

	// Queue is the size of the transmitter's queue in bytes, including the datagram
	// being sent. A datagram that does not fit is dropped (tail drop). 0 means
	// unlimited. Without a Rate, Queue has no effect.
	Queue int

	// Mark is the queue length in bytes above which datagrams of an ECN-capable
	// transport are marked CE. 0 means never.
	Mark int

	// Delay is the propagation time of the line. Jitter is the upper bound of a
	// random addition, which does not reorder datagrams.
	Delay, Jitter time.Duration

	// Loss is the probability that the line loses a datagram. Burst is the mean
	// number of consecutive losses; losses are independent if it is at most 1.
	Loss, Burst float64

	// Reorder is the probability that a datagram takes ReorderBy longer than the
	// others, so that later ones may overtake it.
	Reorder   float64
	ReorderBy time.Duration

	// Duplicate is the probability that a datagram arrives twice.
	Duplicate float64
}

// Validate returns an error that names the first field out of range.
func (l Link) Validate() error {
	for _, f := range []struct {
		name string
		v    float64
	}{{"loss", l.Loss}, {"reorder", l.Reorder}, {"duplicate", l.Duplicate}} {
		if !(f.v >= 0 && f.v <= 1) {
			return fmt.Errorf("link: %s %v: must be 0 to 1", f.name, f.v)
		}
	}
	for _, f := range []struct {
		name string
		v    int64
	}{
		{"rate", l.Rate}, {"queue", int64(l.Queue)}, {"mark", int64(l.Mark)},
		{"delay", int64(l.Delay)}, {"jitter", int64(l.Jitter)}, {"reorder by", int64(l.ReorderBy)},
	} {
		if f.v < 0 {
			return fmt.Errorf("link: %s %d: must not be negative", f.name, f.v)
		}
	}
	return nil
}

// Path simulates a Link. It has no clock and no goroutine: the caller passes the time at
// which a datagram enters and receives the time at which it arrives. The same seed and
// the same calls give the same result. A Path is not safe for concurrent use.
type Path struct {
	link Link
	rng  *rand.Rand

	idle    time.Duration // time at which the transmitter becomes idle
	last    time.Duration // latest arrival of a datagram that was not reordered
	losing  bool          // the line is in a burst of losses
	counter PathCounters
}

// PathCounters count the datagrams that entered a Path, by fate.
type PathCounters struct {
	Datagrams  uint64 // datagrams that entered
	Overflowed uint64 // dropped because the queue was full
	Lost       uint64 // lost on the line
	Marked     uint64 // marked CE
	Reordered  uint64
	Duplicated uint64
	MaxQueue   int // largest queue length in bytes
}

// Arrival is the arrival of a datagram at the far end.
type Arrival struct {
	At time.Duration // time on the caller's clock
	CE bool          // marked CE: congestion experienced
}

// NewPath returns a new Path. It panics if l is not valid.
func NewPath(l Link, seed uint64) *Path {
	if err := l.Validate(); err != nil {
		panic("netem: " + err.Error())
	}
	return &Path{link: l, rng: rand.New(rand.NewPCG(seed, 0x11F))}
}

// Counters returns a snapshot of the counters.
func (p *Path) Counters() PathCounters { return p.counter }

// Send passes a datagram of size bytes, headers included, into the path at time now,
// which must not be before the now of the previous call. It appends the datagram's
// arrivals to dst: one normally, two if it is duplicated, none if it is dropped or lost.
// capable says that the datagram belongs to an ECN-capable transport.
func (p *Path) Send(dst []Arrival, now time.Duration, size int, capable bool) []Arrival {
	l := &p.link
	p.counter.Datagrams++
	sent, marked := now, false
	if l.Rate > 0 {
		start := max(p.idle, now)
		waiting := int((start-now).Seconds()*float64(l.Rate)/8 + 0.5)
		if l.Queue > 0 && waiting+size > l.Queue {
			p.counter.Overflowed++
			return dst
		}
		p.counter.MaxQueue = max(p.counter.MaxQueue, waiting+size)
		if capable && l.Mark > 0 && waiting >= l.Mark {
			marked = true
			p.counter.Marked++
		}
		sent = start + time.Duration(float64(size)*8*float64(time.Second)/float64(l.Rate))
		p.idle = sent
	}
	if p.lost() {
		p.counter.Lost++
		return dst
	}
	at := sent + l.Delay
	if l.Jitter > 0 {
		at += time.Duration(p.rng.Int64N(int64(l.Jitter) + 1))
	}
	if l.Reorder > 0 && p.rng.Float64() < l.Reorder {
		p.counter.Reordered++
		at += l.ReorderBy
	} else {
		at = max(at, p.last)
		p.last = at
	}
	dst = append(dst, Arrival{At: at, CE: marked})
	if l.Duplicate > 0 && p.rng.Float64() < l.Duplicate {
		p.counter.Duplicated++
		dst = append(dst, Arrival{At: at, CE: marked})
	}
	return dst
}

// lost chooses whether the line loses the next datagram. Bursts follow Gilbert's model:
// the line is in a losing or a passing state, and the probabilities of the transitions
// give the mean length of a burst and the share of losses.
func (p *Path) lost() bool {
	l := &p.link
	switch {
	case l.Loss == 0:
		return false
	case l.Burst <= 1 || l.Loss == 1:
		return p.rng.Float64() < l.Loss
	}
	end := 1 / l.Burst
	begin := min(1, end*l.Loss/(1-l.Loss))
	if p.losing {
		p.losing = p.rng.Float64() >= end
	} else {
		p.losing = p.rng.Float64() < begin
	}
	return p.losing
}
