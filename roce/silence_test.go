package roce

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/roce/netem"
)

// silent returns a requester whose first WRITE was acknowledged and whose
// second WRITE was not.
func silent(t *testing.T) *single {
	l := alone(t, 0, pairOptions{mtu: 256})
	write := func() *Work { return &Work{Op: rdma.WRWrite, Src: &source{b: pattern(8, 1)}, Length: 5, RKey: 1} }
	first := l.q.req.next
	l.post(0, write(), write())
	l.sent()
	l.give(ack(first))
	l.m.statuses(rdma.StatusSuccess)
	return l
}

// pass lets time pass and the timers fire on time.
func (l *single) pass(d int64) {
	for end := l.clock + d; l.clock < end; {
		l.clock = min(l.clock+d/100, end)
		l.port[0].expire(l.clock)
		l.sent()
	}
}

// TestLateTimer lets a timer fire late. A late timer means that this process
// did not run. Answers may then wait in the socket, so the timeout does not
// count before they can be read.
func TestLateTimer(t *testing.T) {
	l := silent(t)
	full := int64(AckTimeout(l.q.send.Timeout))
	timeouts := func() uint64 { return l.port[0].Counters().Timeouts }
	l.clock += 3 * full
	l.port[0].expire(l.clock)
	if n := timeouts(); n != 0 {
		t.Fatalf("%d timeouts as soon as the process runs again", n)
	}
	// The timeout is prolonged only once.
	l.clock += 3 * full
	l.port[0].expire(l.clock)
	if n := timeouts(); n != 1 {
		t.Fatalf("%d timeouts after the second wait, want 1", n)
	}
}

// A peer answers in the order of the requests. A response is lost when the answer of its request has
// ended, and once more when a request is answered that was sent after the repeated one.
func TestLostResponses(t *testing.T) {
	const mtu, packets = 256, 64
	l := alone(t, 0, pairOptions{mtu: mtu})
	first := l.q.req.next
	read := func() *Work {
		return &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, packets*mtu)}, Length: packets * mtu, RKey: 1}
	}
	l.post(0, read())
	l.sent()
	response := func(i int) []byte { return readResponse(first, i, packets, mtu) }
	want := func(n uint64, what string) {
		t.Helper()
		if got := l.port[0].Counters().Losses; got != n {
			t.Errorf("%s: %d losses, want %d", what, got, n)
		}
	}
	l.give(response(0))
	for i := 2; i < packets-1; i++ {
		l.give(response(i))
		l.clock += int64(AckTimeout(l.q.send.Timeout)) / 5
	}
	want(0, "the answer has not ended")
	l.give(response(packets - 1))
	want(1, "a response is missing")
	l.give(response(2), response(packets-1))
	want(1, "copies of the same answer")
	l.post(0, read())
	l.sent()
	l.give(response(packets))
	want(2, "the next READ is answered")
}

// A probe asks again for responses that have not come. They count as lost when the answer to the probe
// comes without copies of them, and not if they were only late.
func TestLateResponses(t *testing.T) {
	const mtu, packets = 256, 4
	for _, late := range []bool{true, false} {
		l := alone(t, 0, pairOptions{mtu: mtu})
		first := l.q.req.next
		read := func() {
			l.post(0, &Work{Op: rdma.WRRead, Dst: &sink{b: make([]byte, packets*mtu)}, Length: packets * mtu, RKey: 1})
			l.sent()
			l.clock += 1000
		}
		answer := func(from, to int) {
			for i := from; i < to; i++ {
				l.give(readResponse(first, i, packets, mtu))
			}
		}
		read()
		answer(0, packets) // measures the round trip
		read()
		answer(packets, packets+1)
		l.clock += 2 * l.q.req.rtt.timeout()
		l.port[0].expire(l.clock)
		l.expect(l.sent(), fmt.Sprintf("RDMA READ Request %d A va 256 key 1 len 768", psnAdd(first, packets+1)))
		l.clock += 1000
		answer(packets+1, 2*packets)
		if late {
			answer(packets+1, 2*packets)
		}
		read()
		answer(2*packets, 3*packets)
		want := uint64(1)
		if late {
			want = 0
		}
		if n := l.port[0].Counters().Losses; n != want {
			t.Errorf("late %v: %d losses, want %d", late, n, want)
		}
		l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
	}
}

// TestProbedPackets sends eight packets over a path that loses everything. The first probe is a
// single packet, and so is each singleProbe-th. The others are not, unless the peer knows go-back-N only: it
// would drop the packets after a lost one.
func TestProbedPackets(t *testing.T) {
	for _, v := range []struct {
		selective bool
		want      []uint64 // packets sent so far, after each time that some were sent
	}{
		{true, []uint64{8, 9, 9 + probedPackets, 9 + 2*probedPackets, 9 + 3*probedPackets, 10 + 3*probedPackets}},
		{false, []uint64{8, 9, 10, 11, 12, 13}},
	} {
		l := newLinked(t, pairOptions{mtu: 1024, selective: v.selective}, netem.Link{Loss: 1}, netem.Link{}, 1)
		l.post(0, &Work{Op: rdma.WRWrite, Length: 8 << 10, RKey: 1, Src: &source{b: make([]byte, 8<<10)}})
		var got []uint64
		l.run(time.Minute, func() bool {
			if n := l.path[1].Counters().Datagrams; len(got) == 0 || n != got[len(got)-1] {
				got = append(got, n)
			}
			return len(got) == len(v.want)
		})
		if !slices.Equal(got, v.want) {
			t.Errorf("selective %v: %d packets sent, want %d", v.selective, got, v.want)
		}
	}
}
