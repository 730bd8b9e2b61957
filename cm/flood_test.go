package cm_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestStrangersFlood floods listeners from QP 1 of a third device, 10,000 messages a second. A peer
// connects and resolves meanwhile. The program accepts one request after another.
func TestStrangersFlood(t *testing.T) {
	stranger := netip.MustParseAddr("192.0.2.3")
	s := &scripted{}
	req := func(i int, t mad.Transport) *mad.REQ {
		m := s.request(serverAddr)
		m.LocalID, m.QPN, m.Transport = uint32(i)+1, uint32(i)+1, t
		return m
	}
	for _, test := range []struct {
		name string
		send func(i int) mad.Message
		mra  bool
	}{
		{"requests for UC", func(i int) mad.Message { return req(i, mad.UC) }, false},
		{"requests for XRC", func(i int) mad.Message { return req(i, mad.XRC) }, false},
		{"half-open", func(i int) mad.Message { return req(i, mad.RC) }, false},
		{"half-open with an MRA", func(i int) mad.Message { return req(i, mad.RC) }, true},
		{"queries", func(i int) mad.Message {
			return &mad.SIDRREQ{
				RequestID: uint32(i) + 1, ServiceID: mad.ServiceID(mad.PortSpaceUDP, 7471),
				Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: stranger, Dst: serverAddr}),
			}
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := inproc.NewNetwork(nil)
				server, client := partiesOn(t, n)
				*s = scripted{party: newParty(t, listenOn(t, n, stranger), stranger)}
				s.open(serverAddr, func(m mad.Message) {
					if rep, ok := m.(*mad.REP); ok && test.mra {
						s.send(&mad.MRA{LocalID: rep.RemoteID, RemoteID: rep.LocalID, About: mad.AboutREP, ServiceTimeout: 31})
					}
				})
				l := listen(t, server, 7471)
				dl, err := cm.ListenDatagram(server.dev, 7471, nil)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				var all sync.WaitGroup
				all.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						s.send(test.send(i))
						time.Sleep(100 * time.Microsecond)
					}
				})
				all.Go(func() {
					for {
						q, err := dl.Accept(context.Background())
						if err != nil {
							return
						}
						time.Sleep(time.Millisecond)
						_ = q.Reply(1, 2, nil) // fails if the query was displaced since
					}
				})
				all.Go(func() {
					for {
						r, err := l.Accept(context.Background())
						if err != nil {
							return
						}
						time.Sleep(time.Millisecond)
						all.Go(func() {
							qp := server.qp()
							defer qp.Close()
							c, err := r.Accept(ctx, qp, nil)
							if err != nil {
								return
							}
							<-c.Done()
						})
					}
				})
				flooded, dials := 3*time.Second, 3
				if testing.Short() {
					flooded, dials = time.Second, 1
				}
				time.Sleep(flooded)
				addr := netip.AddrPortFrom(serverAddr, 7471)
				for range dials {
					qp := client.qp()
					c, err := cm.Dial(context.Background(), qp, addr, nil)
					if err != nil {
						t.Error(err)
					} else if err := c.Close(); err != nil {
						t.Error(err)
					}
					qp.Close()
					if _, err := cm.Resolve(context.Background(), client.dev, addr, nil); err != nil {
						t.Error(err)
					}
				}
				cancel()
				l.Close()
				dl.Close()
				all.Wait()
				time.Sleep(time.Minute)
				s.gsi.Close()
				for _, p := range []*party{server, client, s.party} {
					p.close()
				}
			})
		})
	}
}
