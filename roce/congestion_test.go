package roce

import "testing"

// TestCongestionWindow holds the window of a congestion controller against exact values, one rule a
// case. Each step delivers and loses packets of 1000 bytes in a round trip of 1 ms.
func TestCongestionWindow(t *testing.T) {
	const (
		trip = int64(1e6)
		size = 1000
		top  = 400_000
	)
	type step struct {
		delivered, lost int64
		want            int64 // the limit after the step
	}
	for _, c := range []struct {
		name  string
		c     congestion
		limit int64
		steps []step
	}{
		{"below the threshold the limit grows by what arrives", congestion{slow: top, restricted: true}, 40_000, []step{{40, 0, 80_000}}},
		{"above it, by a 48th in a round trip", congestion{slow: 1, restricted: true}, 96_000, []step{{96, 0, 98_000}}},
		{"by at least a packet", congestion{slow: 1, restricted: true}, 24_000, []step{{24, 0, 25_000}}},
		{"not beyond the top", congestion{slow: 2 * top, restricted: true}, 390_000, []step{{40, 0, top}}},
		{"not while the application sends less", congestion{slow: top}, 40_000, []step{{40, 0, 40_000}}},
		{"two lost packets are no congestion", congestion{}, 100_000, []step{{200, 2, 100_000}}},
		{"nor are 2 percent", congestion{}, 200_000, []step{{980, 19, 200_000}}},
		{"more loss cuts the limit to three quarters", congestion{}, 200_000, []step{{200, 20, 150_000}}},
		{"but not above what the path delivered", congestion{}, 400_000, []step{{200, 20, 200_000}}},
		{"nor below the minimum", congestion{}, minWindow, []step{{200, 20, minWindow}}},
		{"the round after a cut is not measured", congestion{}, 200_000, []step{{200, 20, 150_000}, {10, 190, 150_000}}},
		{"a cut that reduces the loss stays", congestion{}, 200_000, []step{{200, 20, 150_000}, {200, 20, 150_000}, {150, 0, 150_000}}},
		{"a cut that costs nothing stays", congestion{}, 200_000, []step{{200, 20, 150_000}, {200, 20, 150_000}, {200, 2, 150_000}}},
		{"a cut that only reduces the rate is undone", congestion{}, 200_000, []step{{200, 20, 150_000}, {150, 15, 150_000}, {150, 15, 200_000}}},
		{"and that loss is tolerated then", congestion{}, 200_000, []step{{200, 20, 150_000}, {150, 15, 150_000}, {150, 15, 200_000}, {200, 20, 200_000}, {200, 20, 200_000}}},
		{"a loss above 45 percent is never the line's", congestion{}, 200_000, []step{{200, 200, 150_000}, {150, 150, 150_000}, {150, 150, 112_500}}},
		{"a short queue is cut to four fifths", congestion{yields: true}, 40_000, []step{{130, 10, 32_000}}},
		{"or by the loss, if that is more", congestion{yields: true}, 40_000, []step{{75, 75, 20_000}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, limit := int64(1), c.limit
			for i, s := range c.steps {
				// A step's packets share one round trip, and the last event ends the round.
				if c.c.start == 0 {
					c.c.start = now
				}
				c.c.lost += s.lost
				now += trip
				if limit = c.c.onDelivered(now, trip, s.delivered*size, s.delivered, limit, top, false); limit != s.want {
					t.Fatalf("step %d: the limit is %d, want %d (%+v)", i, limit, s.want, c.c)
				}
			}
		})
	}
}

// TestCongestionNotifications holds the reaction to notifications against DCQCN's: the first one halves
// the limit, and later ones reduce it by half of alpha, which decays in each interval without one.
func TestCongestionNotifications(t *testing.T) {
	const interval = int64(cnpInterval)
	for _, c := range []struct {
		name  string
		at    []int64 // times of the notifications
		limit int64
		want  int64
	}{
		{"the first halves the limit", []int64{1}, 100_000, 50_000},
		{"a second one in the same interval counts for nothing", []int64{1, interval}, 100_000, 50_000},
		{"one in the next interval", []int64{1, 1 + interval}, 100_000, 26_464},
		{"one after a long pause", []int64{1, 1 + 1000*interval}, 100_000, 48_060},
		{"not below the minimum", []int64{1}, minWindow + 1, minWindow},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g congestion
			limit := c.limit
			for _, at := range c.at {
				g.testing = true
				before := limit
				if limit = g.onCNP(at, 0, limit); limit < before && (g.testing || g.slow != limit) {
					t.Errorf("an experiment goes on, or growth is fast above %d: %+v", limit, g)
				}
			}
			if limit != c.want {
				t.Errorf("the limit is %d, want %d", limit, c.want)
			}
		})
	}
}

// TestOneController holds which controller computes the limit: the model of the path where this side can pace and the
// path has delay, and the loss elsewhere. The model takes no loss for congestion.
func TestOneController(t *testing.T) {
	for _, c := range []struct {
		name   string
		pacing bool
		trip   int64
		model  bool
	}{
		{"before a round trip is known", true, 0, false},
		{"a short path", true, longRTT - 1, false},
		{"a path with delay", true, longRTT, true},
		{"a path with delay, on which the peer sends", false, longRTT, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := window{pacing: c.pacing}
			w.init(firstWindow)
			if c.trip != 0 {
				w.measured(1, c.trip)
			}
			if _, model := w.controller().(byModel); model != c.model {
				t.Errorf("the model of the path: %v, want %v", model, c.model)
			}
			limit := int64(200_000)
			w.start, w.congestion.delivered, w.packets = 1, 200_000, 200
			if limit = w.dropped(1+20*longRTT, c.trip, 100, limit); (limit == 200_000) != c.model {
				t.Errorf("a third of the packets lost: the limit is %d", limit)
			}
		})
	}
}

// TestNotifiedModel notifies a window whose controller is the model of the path: the rate of the model falls as the limit does.
func TestNotifiedModel(t *testing.T) {
	w := window{pacing: true}
	w.init(firstWindow)
	w.measured(1, longRTT)
	w.path.phase, w.path.rates[1] = cruising, 0.4
	if limit := w.controller().notified(2, longRTT, 100_000); limit != 50_000 || w.path.rate() != 0.2 {
		t.Errorf("limit %d, want 50000; rate %v, want 0.2", limit, w.path.rate())
	}
}
