package roce

import (
	"fmt"
	"testing"
	"time"

	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/roce/netem"
)

// TestPathModel runs a model through its phases, on a path of 0.1 bytes per nanosecond.
func TestPathModel(t *testing.T) {
	const (
		ms   = int64(1e6)
		rate = 0.1
	)
	var m pathModel
	now := ms
	m.measured(now, 10*ms)
	round := func(rate, loss float64) {
		now += 10 * ms
		m.ended(rate, loss, true)
		m.expired(now)
	}
	limit := int64(100_000)
	for _, r := range []float64{rate / 4, rate / 2, rate, rate, rate} {
		if m.phase != starting || m.gain() <= 2 || m.window(limit, 7) != limit+7 {
			t.Fatalf("rate %v: %+v, want phase starting", r, m)
		}
		round(r, 0.1) // a lossy line is no reason to stop
	}
	round(rate, 0.1)
	if m.phase != draining || m.gain() >= 1 || m.window(limit, 7) != m.holds() {
		t.Fatalf("%+v, want phase draining after three rounds without growth", m)
	}
	if holds := int64(rate * 10e6); m.holds() != holds {
		t.Fatalf("the path holds %d bytes, want %d", m.holds(), holds)
	}
	round(rate, 0)
	gains := 0.0
	for range cycleRounds {
		gains += m.gain()
		if m.phase != cruising || m.window(limit, 7) != 2*m.holds() {
			t.Fatalf("%+v, want phase cruising", m)
		}
		round(rate, 0.3)
	}
	if gains != cycleRounds {
		t.Errorf("mean gain %v, want 1", gains/cycleRounds)
	}
	// The path becomes faster: the model follows without a pause.
	before := m.rate()
	for range cycleRounds + 4 {
		round(before*m.gain(), 0)
		before = m.rate()
	}
	if m.rate() < 1.9*rate {
		t.Errorf("rate %v after a cycle on a faster path, want about twice %v", m.rate(), rate)
	}
	// And slower: the old samples expire.
	for range rateRounds {
		round(rate/2, 0)
	}
	if m.rate() != rate/2 {
		t.Errorf("rate %v on a slower path, want %v", m.rate(), rate/2)
	}
	if m.ended(rate/4, 0, false); m.rate() != rate/2 {
		t.Error("a round in which the application sent little counts")
	}
	if m.slowed(0.5); m.rate() != rate/4 {
		t.Errorf("rate %v after a notification, want half of %v", m.rate(), rate/2)
	}
	// The round trip is measured again when it expires.
	now = m.seen + tripLasts + 1
	m.expired(now)
	if m.phase != emptying || m.window(limit, 7) != m.holds()/2 {
		t.Fatalf("%+v, want phase emptying", m)
	}
	m.measured(now+1, 14*ms)
	m.measured(now+2, 12*ms)
	if m.expired(now + emptyFor); m.phase != cruising || m.trip != 12*ms {
		t.Errorf("%+v, want a round trip of 12 ms", m)
	}
}

// TestPace takes turns at a window whose path has delay. A wait must be long enough for a timer, even
// if a QP has measured a round trip of nothing: shorter waits would let its timer fire all the time. And
// a QP that has no sample yet must keep to the rate of the path, not to that of its guess.
func TestPace(t *testing.T) {
	const (
		trip = 40e6
		most = 102 * minWindow // the least window in each of 100 round trips, and one part in 50
	)
	for _, rtt := range []int64{1, firstRTT, trip} {
		var w window
		w.init(firstWindow)
		w.measured(1, trip)
		w.path.phase = cruising // no rate is known: the least is sent
		now, sent := int64(1), int64(0)
		for now < 100*trip && sent <= most {
			wait := w.pace(now, rtt, 1000, firstWindow)
			switch {
			case wait == 0:
				sent += 1000
			case wait < paceWait:
				t.Fatalf("round trip %d: wait of %d ns", rtt, wait)
			}
			now += wait
		}
		if sent > most {
			t.Errorf("round trip %d: %d bytes in 100 round trips of the path, want %d", rtt, sent, 100*minWindow)
		}
	}
}

// TestLongPathsIgnoreLoss transfers over a path with delay whose queue holds a fifth of what the
// path holds. Loss of the line must not reduce the rate by more than the loss itself, and the
// queue must overflow seldom after the start.
func TestLongPathsIgnoreLoss(t *testing.T) {
	const size = 12 << 20
	for _, loss := range []float64{0, 0.01, 0.1} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			link := netem.Link{Rate: 100 * mbit, Queue: 64 * kb, Delay: 10 * time.Millisecond, Loss: loss}
			l := newLinked(t, pairOptions{mtu: 1024, selective: true}, link, link, 1)
			transfer(t, l, rdma.WRWrite, size/4, 1<<19, 16) // finds the rate
			for _, m := range l.mem {
				m.began, m.ended = nil, nil
			}
			before := l.path[1].Counters()
			took := transfer(t, l, rdma.WRWrite, size, 1<<19, 16)
			c := l.path[1].Counters()
			share := float64(size) * 8 / took.Seconds() / float64(link.Rate)
			overflowed := float64(c.Overflowed-before.Overflowed) / float64(c.Datagrams-before.Datagrams)
			t.Logf("%.3f of the link, %.3f overflowed; %s", share, overflowed, describe(l))
			if want := 0.85 - 1.2*loss; share < want || overflowed > 0.05 {
				t.Errorf("%.3f of the link's rate, want %.3f; %.3f of the packets overflowed, want at most 0.05", share, want, overflowed)
			}
		})
	}
}
