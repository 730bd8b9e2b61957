package netem_test

import (
	"math"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/roce/netem"
)

// A queue of 16 KB at 100 Mbit/s accepts 16 KB, drops the rest, and sends one datagram of
// 1500 bytes per 120 µs.
func TestPathQueue(t *testing.T) {
	p := netem.NewPath(netem.Link{Rate: 100e6, Queue: 16 << 10, Mark: 6000, Delay: time.Millisecond}, 1)
	var got []netem.Arrival
	for range 20 {
		got = p.Send(got, 0, 1500, true)
	}
	if len(got) != 10 {
		t.Fatalf("%d of 20 datagrams arrive, want the 10 that fit in 16384 bytes", len(got))
	}
	for i, a := range got {
		if want := time.Millisecond + time.Duration(i+1)*120*time.Microsecond; a.At != want {
			t.Errorf("datagram %d arrives at %v, want %v", i, a.At, want)
		}
		if want := i >= 4; a.CE != want {
			t.Errorf("datagram %d: marked %t, want %t: 4 datagrams are 6000 bytes", i, a.CE, want)
		}
	}
	c := p.Counters()
	if c.Overflowed != 10 || c.MaxQueue != 15000 || c.Marked != 6 {
		t.Errorf("counters %+v, want 10 overflowed, 6 marked and a queue of at most 15000 bytes", c)
	}
	// The transmitter is idle again after 1.2 ms.
	if got = p.Send(got[:0], 2*time.Millisecond, 1500, false); len(got) != 1 || got[0].At != 3120*time.Microsecond {
		t.Errorf("after the queue has drained: %v, want one arrival at 3.12ms", got)
	}
}

// The share of losses is Loss, with and without bursts, and bursts have the mean length
// Burst.
func TestPathLoss(t *testing.T) {
	for _, burst := range []float64{0, 5} {
		p := netem.NewPath(netem.Link{Loss: 0.1, Burst: burst}, 7)
		const n = 200_000
		lost, bursts, before := 0, 0, false
		for range n {
			now := len(p.Send(nil, 0, 100, false)) == 0
			if now {
				lost++
				if !before {
					bursts++
				}
			}
			before = now
		}
		if share := float64(lost) / n; math.Abs(share-0.1) > 0.01 {
			t.Errorf("burst %v: %.3f of the datagrams are lost, want 0.1", burst, share)
		}
		want := max(burst, 1/0.9)
		if mean := float64(lost) / float64(bursts); math.Abs(mean-want) > want/10 {
			t.Errorf("burst %v: losses come in runs of %.2f, want %.2f", burst, mean, want)
		}
	}
}

// Only reordered datagrams are overtaken; jitter preserves the order.
func TestPathOrder(t *testing.T) {
	send := func(l netem.Link) (late int, c netem.PathCounters) {
		p := netem.NewPath(l, 3)
		var last time.Duration
		for i := range 1000 {
			for _, a := range p.Send(nil, time.Duration(i)*time.Microsecond, 100, false) {
				if a.At < last {
					late++
				}
				last = max(last, a.At)
			}
		}
		return late, p.Counters()
	}
	if late, _ := send(netem.Link{Jitter: time.Millisecond}); late != 0 {
		t.Errorf("jitter alone: %d datagrams arrive out of order", late)
	}
	late, c := send(netem.Link{Reorder: 0.02, ReorderBy: time.Millisecond, Duplicate: 0.5})
	if c.Reordered == 0 || late == 0 {
		t.Errorf("%d datagrams were reordered, %d others arrived before one that was sent earlier: want some", c.Reordered, late)
	}
	if c.Duplicated < 400 || c.Duplicated > 600 {
		t.Errorf("%d of 1000 datagrams were duplicated with probability 0.5", c.Duplicated)
	}
}

func TestLinkValidate(t *testing.T) {
	for _, l := range []netem.Link{
		{Rate: -1}, {Queue: -1}, {Mark: -1}, {Delay: -1}, {Jitter: -1}, {ReorderBy: -1},
		{Loss: 1.1}, {Loss: math.NaN()}, {Reorder: -0.1}, {Duplicate: 2},
	} {
		if l.Validate() == nil {
			t.Errorf("%+v is valid", l)
		}
	}
}
