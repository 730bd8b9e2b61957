package roce

import (
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/rdma"
)

// TestUnreliableRate sends long UC messages, and many datagrams, over a link that is a
// quarter faster than the sender's rate and has a small queue. Nothing is lost, and the time
// is that of the rate.
func TestUnreliableRate(t *testing.T) {
	const bytes = 32 << 20
	link := netLink{Rate: 8 * leastDefaultRate * 5 / 4, Queue: 300 * kb, Delay: 20 * time.Microsecond}
	for _, typ := range []rdma.QPType{rdma.UC, rdma.UD} {
		l := newLinked(t, pairOptions{typ: typ, mtu: 4096}, link, link, 1)
		var n int
		if typ == rdma.UC {
			n = 4
			buf := pattern(1<<16, 9)
			l.qp[1].h = bulk{l.mem[1], buf}
			for range n {
				l.mem[0].post(&Work{Op: ibv.WRWriteImm, Length: bytes / 4, RKey: 1, Src: &cycled{b: buf}})
				l.mem[1].recv(nil)
			}
		} else {
			n = bytes / 4096
			ah, err := l.port[0].NewAH(0, l.conn[1].addr, 0)
			if err != nil {
				t.Fatal(err)
			}
			buf, room := make([]byte, 4096), make([]byte, 40+4096)
			for range n {
				l.mem[0].post(&Work{Op: ibv.WRSend, Length: 4096, Src: &source{b: buf}, AH: ah, DestQPN: l.qp[1].num})
				l.mem[1].recv(room)
			}
		}
		l.port[0].ready.push(l.qp[0])
		start := l.clock
		if !l.run(time.Hour, nil) {
			t.Fatal("not done after an hour")
		}
		l.mem[0].allSucceeded(n)
		if len(l.mem[1].got) != n {
			t.Errorf("type %d: %d of %d messages arrived", typ, len(l.mem[1].got), n)
		}
		took := time.Duration(l.clock - start).Seconds()
		if rate := bytes * (4096 + congestion.PacketCost) / 4096 / took; rate < 0.9*leastDefaultRate || rate > 1.1*leastDefaultRate {
			t.Errorf("type %d: %.0f bytes per second, want %.0f", typ, rate, leastDefaultRate)
		}
	}
}

func TestLineRate(t *testing.T) {
	for _, v := range []struct {
		rate   int64
		buffer int
		want   lineRate
	}{
		{-1, 1 << 20, lineRate{}},
		{1e6, 1 << 20, lineRate{rate: 1e-3, burst: congestion.Least}},
		{1e9, 1 << 20, lineRate{rate: 1, burst: 1 << 18}},
		{1e9, 0, lineRate{rate: 1, burst: 2e6}},
		{0, 0, lineRate{rate: 0.1, burst: 2e5}},
		{0, 425984, lineRate{rate: 0.1, burst: 425984 / 4}},
		{0, 8 << 20, lineRate{rate: (4 << 20) / 20e6, burst: (4 << 20) / 10}},
		{0, 16 << 20, lineRate{rate: 0.4, burst: 8e5}},
	} {
		if got := newLineRate(v.rate, v.buffer); got != v.want {
			t.Errorf("rate %d, buffer %d: %+v, want %+v", v.rate, v.buffer, got, v.want)
		}
	}
	// An unlimited rate never waits.
	if l := newLineRate(-1, 0); l.wait(1) != 0 {
		t.Error("an unlimited rate waits")
	}
}

// TestBucketOfLowRate asks so often that no call finds credit for a whole byte.
func TestBucketOfLowRate(t *testing.T) {
	const rate = 1e-3 // bytes per nanosecond
	b := bucket{at: 1}
	sent := 0
	for now := int64(1); now < 1e6; now += 100 {
		if b.wait(now, rate, 100) == 0 {
			b.credit -= 10
			sent += 10
		}
	}
	if sent < 990 || sent > 1010 {
		t.Errorf("%d bytes in a millisecond, want 1000", sent)
	}
}
