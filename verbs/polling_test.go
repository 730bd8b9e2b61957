package verbs_test

import (
	"context"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// patient selects the longest timeout, so that packets which are not sent in time are not
// retransmitted either.
var patient = &verbs.ConnectOptions{Timeout: 2 * time.Hour}

// TestPolling checks that programs which poll their devices, at both ends, exchange
// messages as others do, and that the devices continue by themselves when the programs
// stop polling.
func TestPolling(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (a, b *side){
		"sockets":    func(t *testing.T) (a, b *side) { return pair(t, verbs.QPAttr{}, patient) },
		"in process": func(t *testing.T) (a, b *side) { return inprocPair(t, verbs.DeviceOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			// A ping-pong: each side waits for the other's message by
			// polling.
			rounds := 2000
			if testing.Short() {
				rounds = 200
			}
			play := func(s *side, first bool) {
				done := s.dev.Polling()
				defer done()
				wcs := make([]rdma.WC, 4)
				for i := range rounds {
					if i > 0 || !first {
						for got := false; !got; {
							if !s.dev.Poll() {
								runtime.Gosched()
							}
							for _, wc := range wcs[:s.cq.Poll(wcs)] {
								if wc.Status != rdma.StatusSuccess {
									t.Errorf("round %d: %v %v", i, wc.Opcode, wc.Status)
									return
								}
								got = got || wc.Opcode == rdma.OpRecv
							}
							if ctx.Err() != nil {
								t.Errorf("round %d: %v", i, ctx.Err())
								return
							}
						}
					}
					if _, err := s.qp.PostRecv(verbs.RecvWR{}); err != nil {
						t.Error(err)
						return
					}
					if err := s.qp.Start().Send().Complete(); err != nil {
						t.Error(err)
						return
					}
				}
			}
			b.recv(0)
			var wg sync.WaitGroup
			wg.Go(func() { play(a, true) })
			wg.Go(func() { play(b, false) })
			wg.Wait()
			// The last message, and then work that only the devices' own
			// goroutines can do.
			a.completions(1)
			a.complete(a.qp.Start().ID(9).Signaled().Send())
			a.completion(9, rdma.OpSend, rdma.StatusSuccess)
			a.dev.Polling()() // no goroutine polls, and done may be called twice
		})
	}
}

// inprocSides returns two sides over an in-process network, which are not connected.
func inprocSides(t *testing.T, n *inproc.Options, o verbs.DeviceOptions) (a, b *side) {
	t.Helper()
	network := inproc.NewNetwork(n)
	var sides [2]*side
	for i, addr := range []string{"10.0.0.1:4791", "10.0.0.2:4791"} {
		o.Conn = must[*inproc.Conn](t)(network.Listen(netip.MustParseAddrPort(addr)))
		sides[i] = openSideOn(t, o.Conn.LocalAddr().Addr(), &o, verbs.QPAttr{MaxInlineData: 512})
	}
	return sides[0], sides[1]
}

// inprocPair is pair over an in-process network, for devices with options.
func inprocPair(t *testing.T, o verbs.DeviceOptions) (a, b *side) {
	a, b = inprocSides(t, nil, o)
	connectQPs(t, a.qp, b.qp, patient)
	return a, b
}
