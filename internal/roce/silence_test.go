package roce

import (
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/netconn"
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

// stopped is a network whose packets pass in memory, to a process that takes none while it is set.
type stopped struct {
	netconn.Neighbor
	bool
}

func (s *stopped) Behind(netip.AddrPort, uint32) bool { return s.bool }

// TestStoppedPeer has a peer in another process that does not run for many timeouts. These use up no retries; those
// after it do.
func TestStoppedPeer(t *testing.T) {
	l := silent(t)
	s := &stopped{bool: true}
	l.q.link.near = s
	expire := func() {
		for range 100 {
			l.clock += int64(AckTimeout(l.q.send.Timeout))
			l.port[0].expire(l.clock)
			l.drain(l.at)
		}
	}
	expire()
	if n := l.port[0].Counters().Timeouts; n != 0 {
		t.Errorf("%d timeouts of a peer that does not run", n)
	}
	s.bool = false
	expire()
	l.m.statuses(rdma.StatusSuccess, rdma.StatusRetryExcErr)
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
