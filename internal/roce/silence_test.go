package roce

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// silent returns a requester whose first WRITE was acknowledged and whose
// second WRITE was not.
func silent(t *testing.T) *single {
	l := alone(t, 0, pairOptions{mtu: 256})
	write := func() *Work { return &Work{Op: ibv.WRWrite, Src: &source{b: pattern(8, 1)}, Length: 5, RKey: 1} }
	first := l.q.req.next
	l.post(0, write(), write())
	l.sent()
	l.give(ack(first))
	l.m.statuses(rdma.StatusSuccess)
	return l
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

// TestBrokenRead loses a response. The requester asks for the rest of the READ once, from the missing response on,
// whatever comes after it, and sends the requests behind the READ again.
func TestBrokenRead(t *testing.T) {
	const mtu, packets = 256, 4
	l := alone(t, 0, pairOptions{mtu: mtu})
	first := l.q.req.next
	l.post(0, &Work{Op: ibv.WRRead, Dst: &sink{b: make([]byte, packets*mtu)}, Length: packets * mtu, RKey: 1},
		&Work{Op: ibv.WRWrite, Src: &source{b: make([]byte, 8)}, Length: 8, RKey: 1})
	l.sent()
	response := func(i int) []byte { return readResponse(first, i, packets, mtu) }
	l.expect(l.give(response(0)), "")
	l.expect(l.give(response(2)),
		fmt.Sprintf("RDMA READ Request %d A va 256 key 1 len 768; RDMA WRITE Only %d A va 0 key 1 len 8 8 bytes", psnAdd(first, 1), psnAdd(first, packets)))
	l.expect(l.give(response(3), response(2), ack(psnAdd(first, packets))), "")
	l.give(response(1), response(2), response(3), ack(psnAdd(first, packets)))
	l.m.statuses(rdma.StatusSuccess, rdma.StatusSuccess)
	if c := l.port[0].Counters(); c.Losses != 1 || c.ImpliedNAKs != 1 {
		t.Errorf("%d losses, %d implied NAKs", c.Losses, c.ImpliedNAKs)
	}
}
