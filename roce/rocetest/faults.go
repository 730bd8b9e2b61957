package rocetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Faults says how a network misbehaves. The zero value is a good network.
//
// The fields of type float64 are probabilities, from 0 to 1, and add up to at
// most 1: each datagram suffers one fault at most.
type Faults struct {
	Loss      float64 // it is gone
	Duplicate float64 // it comes twice
	Reorder   float64 // later ones overtake it
	Corrupt   float64 // some of its bits are flipped
	Truncate  float64 // it loses at least one byte at its end, at most all
	Delay     float64 // it comes later than it should, and so out of order

	// Overtakers is how many later datagrams overtake one that is reordered, at
	// most; at least one does. 0 means 8. If not enough follow within Hold, which
	// is 1 ms if 0, it goes on its way: the last one of all must arrive, too.
	Overtakers int
	Hold       time.Duration

	// MaxDelay is how late a delayed datagram is, at most. 0 means 1 ms.
	MaxDelay time.Duration

	// Flips is how many bits of a corrupt datagram are flipped, at most; at least
	// one is. 0 means 1.
	//
	// A test that insists on every byte must reckon with what the invariant CRC
	// cannot see. Its receiver does not know the identification of an IPv4
	// packet: if it allows for any, one corrupt datagram in 2^16 passes, however
	// few bits were flipped. With IPv6 it is one in 2^32, and none with up to 3
	// flips.
	Flips int

	// Latency is how long every datagram takes. It keeps their order.
	Latency time.Duration
}

func (f Faults) withDefaults() Faults {
	sum := 0.0
	for _, p := range [...]float64{f.Loss, f.Duplicate, f.Reorder, f.Corrupt, f.Truncate, f.Delay} {
		if !(p >= 0) {
			panic(fmt.Sprintf("rocetest: a fault's probability is %v", p))
		}
		sum += p
	}
	if sum > 1+1e-9 {
		panic(fmt.Sprintf("rocetest: the faults' probabilities add up to %v", sum))
	}
	if f.Overtakers <= 0 {
		f.Overtakers = 8
	}
	if f.Hold <= 0 {
		f.Hold = time.Millisecond
	}
	if f.MaxDelay <= 0 {
		f.MaxDelay = time.Millisecond
	}
	if f.Flips <= 0 {
		f.Flips = 1
	}
	return f
}

// Action is what becomes of one datagram.
type Action uint8

// The actions of a Filter. Chance, the zero value, leaves it to Faults.
const (
	Chance Action = iota
	Pass
	Lose
	Duplicate
	Reorder
	Corrupt
	Truncate
	Delay
)

// draw rolls the dice for one datagram.
func (f *Faults) draw(rng *rand.Rand) Action {
	x := rng.Float64()
	for _, c := range [...]struct {
		p float64
		a Action
	}{{f.Loss, Lose}, {f.Duplicate, Duplicate}, {f.Reorder, Reorder}, {f.Corrupt, Corrupt}, {f.Truncate, Truncate}, {f.Delay, Delay}} {
		if x < c.p {
			return c.a
		}
		x -= c.p
	}
	return Pass
}

// Counters tell what became of the datagrams sent.
type Counters struct {
	Datagrams uint64 // sent, duplicates not counted
	Passed    uint64 // without a fault
	Lost      uint64
	Duplicated,
	Reordered,
	Corrupted,
	Truncated,
	Delayed uint64
	Failed uint64 // that came late and were refused by the network below, with an error that nobody was there to take
}

// String returns the counters that are not zero, in a line for a test's log.
func (c Counters) String() string {
	s := fmt.Sprintf("%d datagrams, %d passed", c.Datagrams, c.Passed)
	for _, f := range [...]struct {
		n    uint64
		name string
	}{
		{c.Lost, "lost"}, {c.Duplicated, "duplicated"}, {c.Reordered, "reordered"}, {c.Corrupted, "corrupted"},
		{c.Truncated, "truncated"}, {c.Delayed, "delayed"}, {c.Failed, "failed"},
	} {
		if f.n > 0 {
			s += fmt.Sprintf(", %d %s", f.n, f.name)
		}
	}
	return s
}

// Clock is where a faulty network takes its time from.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own when d has passed, unless the
	// Timer is stopped before.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is what AfterFunc returns. *time.Timer is one.
type Timer interface{ Stop() bool }

// systemClock is package time.
type systemClock struct{}

func (systemClock) Now() time.Time                            { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Options are the parts of a faulty network that tests seldom need.
type Options struct {
	Clock Clock // nil: package time

	// Filter, if not nil, is asked first about every datagram. n counts those of
	// this connection from 0. p must not be kept or changed.
	Filter func(n uint64, to netip.AddrPort, p []byte) Action
}
