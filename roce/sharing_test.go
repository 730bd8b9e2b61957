package roce

import (
	"math"
	"testing"
	"time"

	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/roce/netem"
)

// A stream is a TCP stream of packets of 1,500 bytes for tests, with CUBIC (RFC 9438) and the loss
// detection of this package's scoreboard. Its acknowledgements are never lost.
type stream struct {
	path  *netem.Path
	delay int64 // of acknowledgements

	window, slow float64 // packets
	before       float64 // window before the last cut
	cutAt        int64   // time of the last cut; 0: none
	friendly     float64 // window that Reno would have
	trip         int64   // smoothed round trip
	order        int     // of the last packet
	recovered    int     // losses of packets up to this order belong to the last cut
	flying       []tracer
	acks         []tracer // in the order of their arrival
	delivered    int
	lastAck      int64
	free         int64 // time at which pacing allows the next packet
}

// tracer is a packet of a stream in flight, or its acknowledgement.
type tracer struct {
	order    int
	sent, at int64
}

const (
	streamPacket  = 1500
	streamTimeout = 100e6 // ns
)

func newStream(path *netem.Path, delay time.Duration) *stream {
	return &stream{path: path, delay: int64(delay), window: 10, slow: 1e9}
}

func (s *stream) next() int64 {
	next := s.lastAck + streamTimeout
	if len(s.acks) > 0 {
		next = s.acks[0].at
	}
	if float64(len(s.flying)) < s.window {
		next = min(next, s.free)
	}
	return next
}

func (s *stream) advance(now int64) {
	for len(s.acks) > 0 && s.acks[0].at <= now {
		s.acked(s.acks[0], now)
		s.acks = s.acks[1:]
	}
	if now-s.lastAck >= streamTimeout {
		s.slow, s.window, s.before = max(s.window/2, 2), 2, s.window
		s.flying, s.lastAck, s.cutAt = nil, now, now
		s.recovered = s.order
	}
	for float64(len(s.flying)) < s.window && s.free <= now {
		if s.trip != 0 {
			gain := 1.2
			if s.window < s.slow {
				gain = 2
			}
			s.free = max(s.free, now-1e6) + int64(float64(s.trip)/s.window/gain)
		}
		s.order++
		p := tracer{order: s.order, sent: now}
		s.flying = append(s.flying, p)
		for _, a := range s.path.Send(nil, time.Duration(now), streamPacket, false) {
			p.at = int64(a.At) + s.delay
			s.acks = append(s.acks, p)
		}
	}
}

func (s *stream) acked(a tracer, now int64) {
	s.lastAck = now
	s.delivered++
	if rtt := now - a.sent; s.trip == 0 {
		s.trip = rtt
	} else {
		s.trip += (rtt - s.trip) / 8
	}
	rest := s.flying[:0]
	for _, p := range s.flying {
		switch {
		case p.order == a.order:
		case p.order < a.order-reorderPackets:
			if p.order > s.recovered {
				s.before, s.cutAt, s.recovered = s.window, now, s.order
				s.window = max(0.7*s.window, 2)
				s.slow, s.friendly = s.window, s.window
			}
		default:
			rest = append(rest, p)
		}
	}
	s.flying = rest
	switch {
	case a.order <= s.recovered:
	case s.window < s.slow:
		s.window++
	default:
		k := math.Cbrt(s.before * 0.3 / 0.4)
		t := float64(now-s.cutAt+s.trip) / 1e9
		target := 0.4*math.Pow(t-k, 3) + s.before
		s.friendly += 0.53 / s.window
		s.window = max(s.window+max(0, min(target, 1.5*s.window)-s.window)/s.window, s.friendly)
	}
}

// sharing is several senders on one path: connected pairs, and TCP streams.
type sharing struct {
	path    *netem.Path
	copies  []*linked
	streams []*stream
	posted  []int
	late    time.Duration // all but the first copy start then
	clock   int64
}

// requestBytes is the length of a request of a sharing.
const requestBytes = 64 << 10

func newSharing(t testing.TB, link netem.Link, copies, streams int) *sharing {
	s := &sharing{path: netem.NewPath(link, 5), posted: make([]int, copies)}
	buf := pattern(1<<16, 9)
	for i := range copies {
		l := newLinked(t, pairOptions{mtu: 1024, selective: true}, link, link, uint64(i+1))
		l.path[1] = s.path
		for k := range l.qp {
			l.qp[k].h = bulk{l.mem[k], buf}
		}
		s.copies = append(s.copies, l)
	}
	for range streams {
		s.streams = append(s.streams, newStream(s.path, link.Delay))
	}
	return s
}

// run advances the clock to a time.
func (s *sharing) run(until time.Duration) {
	for s.clock < int64(until) {
		next := int64(until)
		for i, l := range s.copies {
			if late := int64(s.late); s.clock < late && (i > 0 || len(s.streams) > 0) {
				next = min(next, late)
				continue
			}
			for s.posted[i]-len(l.mem[0].ended) < 64 {
				s.posted[i]++
				l.post(0, &Work{Op: rdma.WRWrite, Length: requestBytes, RKey: 1, Src: &cycled{b: l.qp[0].h.(bulk).b}})
			}
			l.pump()
			next = min(next, l.next())
		}
		for _, t := range s.streams {
			next = min(next, t.next())
		}
		s.clock = max(s.clock, next)
		for _, l := range s.copies {
			l.advance(s.clock)
		}
		for _, t := range s.streams {
			t.advance(s.clock)
		}
	}
}

// bytes returns the bytes that each sender has delivered.
func (s *sharing) bytes() (n []float64) {
	for _, l := range s.copies {
		n = append(n, float64(len(l.mem[0].ended)*requestBytes))
	}
	for _, t := range s.streams {
		n = append(n, float64(t.delivered*(streamPacket-52)))
	}
	return n
}

// TestSharing lets a transfer share a path with another one, and with a TCP stream. Each must get its
// part, and alone the transfer must use the path.
func TestSharing(t *testing.T) {
	for _, row := range []struct {
		name     string
		link     netem.Link
		took     time.Duration
		late     time.Duration
		alone    float64 // of the link's rate
		two      float64 // larger to smaller
		overflow float64 // of the packets of two transfers
		beside   float64 // of what a transfer and a stream carry together
	}{
		{"500 Mbit, 16 KB queue", netem.Link{Rate: 500 * mbit, Queue: 16 * kb, Delay: 60 * time.Microsecond, Jitter: 40 * time.Microsecond}, time.Second, 0, 0.9, 1.3, 0.1, 0.88},
	} {
		t.Run(row.name, func(t *testing.T) {
			run := func(copies, streams int) (*sharing, []float64) {
				s := newSharing(t, row.link, copies, streams)
				s.late = row.late
				s.run(row.took)
				return s, s.bytes()
			}
			_, b := run(1, 0)
			if got := b[0] * 8 / row.took.Seconds() / float64(row.link.Rate); got < row.alone {
				t.Errorf("alone: %.3f of the link's rate, want %.3f", got, row.alone)
			}
			s, b := run(2, 0)
			c := s.path.Counters()
			t.Logf("two transfers: %.0f bytes, %+v", b, c)
			if got := max(b[0], b[1]) / min(b[0], b[1]); got > row.two {
				t.Errorf("of two transfers, one gets %.3f of what the other gets, want at most %.3f", got, row.two)
			}
			if got := float64(c.Overflowed) / float64(c.Datagrams); got > row.overflow {
				t.Errorf("two transfers: %.3f of the packets overflowed, want at most %.3f", got, row.overflow)
			}
			_, b = run(1, 1)
			if got := b[0] / (b[0] + b[1]); got > row.beside {
				t.Errorf("beside a TCP stream: %.3f, want at most %.3f", got, row.beside)
			}
			t.Logf("beside a TCP stream: %.0f bytes", b)
		})
	}
}
