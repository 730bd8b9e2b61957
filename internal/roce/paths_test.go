package roce

import (
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
)

// TestPathReports checks that Paths reports the round trip and the window of a lossy path.
func TestPathReports(t *testing.T) {
	link := netLink{Rate: 1000 * mbit, Queue: 512 * kb, Delay: 5 * time.Millisecond, Loss: 0.01}
	l := newLinked(t, pairOptions{rdAtomic: 16}, link, link, 1)
	transfer(t, l, ibv.WRWrite, 16<<20, 1<<20, 16)
	paths := l.port[0].Paths()
	if len(paths) != 1 {
		t.Fatalf("%d paths, want 1", len(paths))
	}
	s := paths[0]
	if s.Peer != l.conn[1].addr.Addr() || s.QPs != 1 || s.RoundTrip < 10*time.Millisecond || s.RoundTrip > 30*time.Millisecond {
		t.Errorf("%+v", s)
	}
	if w := s.Requests; w.Limit < congestion.Least || w.InFlight != 0 || w.Cuts == 0 {
		t.Errorf("requests: %+v", w)
	}
	if w := s.Responses; w.InFlight != 0 || w.Cuts != 0 {
		t.Errorf("responses: %+v", w)
	}
	l.qp[0].Reset()
	if paths := l.port[0].Paths(); len(paths) != 0 {
		t.Errorf("paths without a QP: %+v", paths)
	}
}
