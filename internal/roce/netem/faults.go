package netem

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/packetconn"
)

// Faults configures a faulty network. The zero value has no faults.
//
// The fields of type float64 are probabilities from 0 to 1, with a sum of at most 1: each
// datagram suffers at most one fault.
type Faults struct {
	Loss      float64 // datagram is lost
	Duplicate float64 // datagram arrives twice
	Reorder   float64 // later datagrams overtake it
	Corrupt   float64 // some of its bits are flipped
	Truncate  float64 // one or more bytes at its end are missing, at most all
	Delay     float64 // the datagram arrives late, and so out of order

	// Overtakers is the largest number of later datagrams that overtake a reordered
	// one; at least one does. 0 means 8. If too few datagrams follow within Hold, the
	// reordered datagram is sent anyway. A Hold of 0 means 1 ms.
	Overtakers int
	Hold       time.Duration

	// MaxDelay is the largest delay of a delayed datagram. 0 means 1 ms.
	MaxDelay time.Duration

	// Flips is the largest number of bits that are flipped in a corrupt datagram; at
	// least one is. 0 means 1.
	//
	// A test that compares all bytes must allow for the limits of the invariant CRC.
	// A receiver that does not know the identification of an IPv4 packet, and accepts
	// any, accepts one corrupt datagram in 2^16, even if only a few bits are flipped.
	// With IPv6 it accepts one in 2^32, and none with up to 3 flips.
	Flips int

	// Latency is the delay of every datagram. It preserves their order.
	Latency time.Duration
}

func (f Faults) withDefaults() Faults {
	sum := 0.0
	for _, p := range [...]float64{f.Loss, f.Duplicate, f.Reorder, f.Corrupt, f.Truncate, f.Delay} {
		if !(p >= 0) {
			panic(fmt.Sprintf("netem: a fault's probability is %v", p))
		}
		sum += p
	}
	if sum > 1+1e-9 {
		panic(fmt.Sprintf("netem: the faults' probabilities add up to %v", sum))
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

// Action is the fate of one datagram.
type Action uint8

// The actions of a Filter. Chance, the zero value, leaves the choice to Faults.
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

// draw chooses an action at random.
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

// Counters count the datagrams sent, by action.
type Counters struct {
	Datagrams uint64 // datagrams sent, not counting duplicates
	Passed    uint64 // datagrams without a fault
	Lost      uint64
	Duplicated,
	Reordered,
	Corrupted,
	Truncated,
	Delayed uint64
	Failed uint64 // delayed datagrams that the inner connection failed to send
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

// Clock is the source of time of a faulty network.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d, unless the Timer is stopped
	// before.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is the result of Clock.AfterFunc. *time.Timer implements it.
type Timer interface{ Stop() bool }

// systemClock is the Clock of package time.
type systemClock struct{}

func (systemClock) Now() time.Time                            { return time.Now() }
func (systemClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Options hold settings that few tests need.
type Options struct {
	Clock Clock // nil: package time

	// Filter, if not nil, chooses the action for each datagram. n is the number of
	// the datagram on this connection, from 0. Filter must not keep or change p.
	Filter func(n uint64, to netip.AddrPort, p []byte) Action

	// Lost, if not nil, is called with each datagram that is lost, after those before it
	// were sent. It must not keep d.Buf, and must not call the Conn.
	Lost func(d packetconn.Train)
}
