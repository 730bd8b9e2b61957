package roce

import (
	"math/rand/v2"
	"time"
)

// netLink describes one direction of a network path: a transmitter with a queue, followed by
// a line with faults. The zero value delivers every datagram at once.
type netLink struct {
	Rate          int64         // of the transmitter, bits per second; 0: unlimited
	Queue         int           // bytes, with the datagram being sent; what does not fit is dropped. 0: unlimited
	Delay, Jitter time.Duration // of the line; jitter is the bound of a random addition, and reorders nothing
	Loss          float64       // probability; Burst is the mean number of losses in a row, if above 1
	Burst         float64
	Reorder       float64 // probability that a datagram takes ReorderBy longer than the others
	ReorderBy     time.Duration
	Duplicate     float64 // probability that a datagram arrives twice
}

// netPath simulates a netLink. The caller passes the time at which a datagram enters and gets the time at which it arrives.
// The same seed and the same calls give the same result.
type netPath struct {
	netLink
	rng    *rand.Rand
	idle   time.Duration // when the transmitter becomes idle
	last   time.Duration // latest arrival of a datagram that was not reordered
	losing bool          // the line is in a burst of losses

	entered, overflowed int // datagrams
}

func newPath(l netLink, seed uint64) *netPath {
	return &netPath{netLink: l, rng: rand.New(rand.NewPCG(seed, 0x11F))}
}

// send passes a datagram of size bytes into the path. It returns the datagram's arrivals: one normally, two if it is
// duplicated, none if it is dropped or lost.
func (p *netPath) send(now time.Duration, size int) []time.Duration {
	p.entered++
	sent := now
	if p.Rate > 0 {
		start := max(p.idle, now)
		waiting := int((start-now).Seconds()*float64(p.Rate)/8 + 0.5)
		if p.Queue > 0 && waiting+size > p.Queue {
			p.overflowed++
			return nil
		}
		sent = start + time.Duration(float64(size)*8*float64(time.Second)/float64(p.Rate))
		p.idle = sent
	}
	if p.lost() {
		return nil
	}
	at := sent + p.Delay
	if p.Jitter > 0 {
		at += time.Duration(p.rng.Int64N(int64(p.Jitter) + 1))
	}
	if p.Reorder > 0 && p.rng.Float64() < p.Reorder {
		at += p.ReorderBy
	} else {
		at = max(at, p.last)
		p.last = at
	}
	if p.Duplicate > 0 && p.rng.Float64() < p.Duplicate {
		return []time.Duration{at, at}
	}
	return []time.Duration{at}
}

// lost chooses whether the line loses the next datagram. Bursts follow Gilbert's model.
func (p *netPath) lost() bool {
	if p.Loss == 0 || p.Burst <= 1 || p.Loss == 1 {
		return p.Loss > 0 && p.rng.Float64() < p.Loss
	}
	end := 1 / p.Burst
	if p.losing {
		p.losing = p.rng.Float64() >= end
	} else {
		p.losing = p.rng.Float64() < min(1, end*p.Loss/(1-p.Loss))
	}
	return p.losing
}
