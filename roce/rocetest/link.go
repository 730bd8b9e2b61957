package rocetest

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Link describes one direction of a network path: a transmitter with a queue in front
// of it, a line behind it, and the faults of that line. The zero value is a path that
// delivers every datagram at once.
type Link struct {
	// Rate is the speed of the transmitter in bits per second; 0: unlimited.
	Rate int64

	// Queue is how many bytes may wait for the transmitter, including the datagram
	// that it is sending. A datagram that does not fit is dropped (tail drop). 0: no
	// limit. It has no effect without a Rate.
	Queue int

	// Mark is the length of the queue in bytes from which on datagrams of an ECN-capable
	// transport are marked CE; 0: never.
	Mark int

	// Delay is the time that a datagram travels behind the transmitter. Jitter is the
	// upper bound of a random addition; datagrams keep their order in spite of it.
	Delay, Jitter time.Duration

	// Loss is the probability that the line loses a datagram. Burst is the mean number
	// of datagrams that are lost in a row; up to 1, losses are independent.
	Loss, Burst float64

	// Reorder is the probability that a datagram takes ReorderBy longer than the others,
	// which may overtake it.
	Reorder   float64
	ReorderBy time.Duration

	// Duplicate is the probability that a datagram arrives twice.
	Duplicate float64
}

// Validate returns an error that names the first field that is out of range.
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

// Path is a Link in use. It has no clock and no goroutine: the caller says when a
// datagram enters, and delivers it when the Path says. The same seed and the same
// calls give the same result. A Path is not safe for concurrent use.
type Path struct {
	link Link
	rng  *rand.Rand

	idle    time.Duration // when the transmitter has sent everything that is queued
	last    time.Duration // when the last datagram that keeps the order arrives
	losing  bool          // the line is in a burst of losses
	counter PathCounters
}

// PathCounters count what a Path did with the datagrams that entered it.
type PathCounters struct {
	Datagrams  uint64 // entered
	Overflowed uint64 // dropped because the queue was full
	Lost       uint64 // lost on the line
	Marked     uint64 // marked CE
	Reordered  uint64
	Duplicated uint64
	MaxQueue   int // the largest number of bytes that waited
}

// Arrival is a datagram that reaches the far end.
type Arrival struct {
	At time.Duration // when, on the caller's clock
	CE bool          // it was marked: congestion experienced
}

// NewPath returns an unused Path. It panics if l is not valid.
func NewPath(l Link, seed uint64) *Path {
	if err := l.Validate(); err != nil {
		panic("rocetest: " + err.Error())
	}
	return &Path{link: l, rng: rand.New(rand.NewPCG(seed, 0x11F))}
}

// Counters returns what became of the datagrams so far.
func (p *Path) Counters() PathCounters { return p.counter }

// Send lets a datagram of size bytes, headers included, enter at a time now, which must
// not be before the time of the previous call. It appends when the datagram arrives to
// dst: nothing for one that is dropped or lost, two arrivals for one that is duplicated.
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

// lost decides whether the line loses the next datagram. Bursts follow Gilbert's model:
// the line is in a losing or a passing state, and the probabilities of the two changes
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
