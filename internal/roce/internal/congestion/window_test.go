package congestion

import "testing"

const (
	ms   = int64(1e6)
	size = 1280
)

// limits checks the limit after each of some events.
func limits(t *testing.T, w Window, events ...any) {
	t.Helper()
	for i := 0; i < len(events); i += 2 {
		events[i].(func(*Window))(&w)
		if want := int64(events[i+1].(int)); w.Limit() != want {
			t.Fatalf("event %d: limit %d, want %d", i/2, w.Limit(), want)
		}
	}
}

func arrived(n int64) func(*Window) { return func(w *Window) { w.Arrived(n, size) } }
func lost(now int64) func(*Window)  { return func(w *Window) { w.Lost(now, 10*ms) } }
func notified(now int64) func(*Window) {
	return func(w *Window) { w.Notified(now, ms/10) }
}

func TestGrowth(t *testing.T) {
	limits(t, New(2<<20), arrived(First), 2*First, arrived(2*First), 4*First, arrived(1<<20), 2<<20, arrived(1<<20), 2<<20)
	// After a loss, a round trip's bytes make the limit a packet larger.
	limits(t, New(2<<20), lost(1), First/2, arrived(First/2), First/2+size, arrived(First/2+size), First/2+2*size, arrived(1), First/2+2*size+1)
}

func TestLossHalvesOnce(t *testing.T) {
	limits(t, New(2<<20),
		lost(5*ms), First/2, lost(5*ms), First/2, lost(15*ms-1), First/2, lost(15*ms), First/4,
		lost(25*ms), First/8, lost(35*ms), First/16, lost(45*ms), Least, lost(55*ms), Least)
	w := New(2 << 20)
	w.Lost(1, ms)
	w.Lost(2, ms)
	w.Lost(2*ms, ms)
	if w.Cuts() != 2 {
		t.Errorf("%d cuts, want 2", w.Cuts())
	}
}

// TestPathWithDelay lets the limit exceed that of the socket buffer by what the path holds.
func TestPathWithDelay(t *testing.T) {
	for _, c := range []struct{ trip, top int64 }{{0, 1 << 20}, {ms - 1, 1 << 20}, {ms, 1<<20 + ms}, {20 * ms, 1<<20 + 20*ms}, {1000 * ms, Largest}} {
		w := New(1 << 20)
		if c.trip != 0 {
			w.Measured(c.trip)
			w.Measured(c.trip + 5*ms) // only the shortest counts
		}
		for range 100 {
			w.Arrived(1<<20, size)
		}
		if w.Limit() != c.top || !w.Open() {
			t.Errorf("round trip %d: limit %d, want %d", c.trip, w.Limit(), c.top)
		}
	}
	w := New(64 << 20)
	if w.Measured(20 * ms); w.top() != 64<<20 {
		t.Errorf("a window of 64 MiB is limited to %d", w.top())
	}
	if w := New(1); w.Limit() != Least {
		t.Errorf("limit %d, want %d", w.Limit(), Least)
	}
}

// TestNotifications has the limits of DCQCN's reaction point: half after the first notification, and less each time as
// the notifications become rare. Those within an interval count once.
func TestNotifications(t *testing.T) {
	limits(t, New(2<<20), notified(1), First/2, notified(1+ms/10-1), First/2)
	w := New(2 << 20)
	w.Notified(1, ms/10)
	w.Notified(1+ms/10, ms/10) // alpha is 1*15/16*15/16+1/16
	alpha := 15.0/16*15/16 + 1.0/16
	if want := int64(float64(int64(First/2)) * (1 - alpha/2)); w.Limit() != want {
		t.Errorf("limit %d, want %d", w.Limit(), want)
	}
	before := w.Limit()
	w.Notified(1000*ms, ms/10) // long after: alpha is hardly more than the gain
	if got := float64(w.Limit()) / float64(before); got < 0.96 || got > 0.97 {
		t.Errorf("%.3f of the limit remain", got)
	}
	w.Arrived(w.Limit(), size)
	if w.slow >= w.Limit() {
		t.Error("the limit doubles after a notification")
	}
}
