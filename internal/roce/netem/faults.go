package netem

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/packetconn"
)

// A reordered datagram is overtaken by up to mostOvertakers later ones. If too few follow within hold, it is sent anyway.
const (
	mostOvertakers = 8
	hold           = time.Millisecond
)

// Faults configures a faulty network. The zero value has no faults.
//
// The fields of type float64 are probabilities from 0 to 1, with a sum of at most 1: each
// datagram suffers at most one fault.
type Faults struct {
	Loss      float64 // datagram is lost
	Duplicate float64 // datagram arrives twice
	Reorder   float64 // later datagrams overtake it, up to mostOvertakers within hold
	Corrupt   float64 // some of its bits are flipped
	Truncate  float64 // one or more bytes at its end are missing, at most all
	Delay     float64 // the datagram arrives late, and so out of order

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
	f.MaxDelay, f.Flips = cmp.Or(max(f.MaxDelay, 0), time.Millisecond), max(f.Flips, 1)
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

// Options hold settings that few tests need.
type Options struct {
	// Filter, if not nil, chooses the action for each datagram. n is the number of
	// the datagram on this connection, from 0. Filter must not keep or change p.
	Filter func(n uint64, to netip.AddrPort, p []byte) Action

	// Lost, if not nil, is called with each datagram that is lost, after those before it
	// were sent. It must not keep d.Buf, and must not call the Conn.
	Lost func(d packetconn.Train)
}
