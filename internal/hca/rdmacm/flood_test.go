package rdmacm

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/cmcore"
	"github.com/softmkey/softmkey/internal/base/mad"
)

// TestStrangers sends a listening program 20,000 requests from as many addresses, more than it
// has fetched. The ids and events stay bounded, a peer connects, and what the program never
// fetches ends without it.
func TestStrangers(t *testing.T) {
	for _, test := range []struct {
		name  string
		space uint16
		most  int // requests that the service keeps
		send  func(i uint32, ip []byte) mad.Message
	}{
		{"connections", 0x0106, minBacklog, func(i uint32, ip []byte) mad.Message {
			return &mad.REQ{LocalID: i, QPN: i, ServiceID: mad.ServiceID(mad.PortSpaceTCP, 7174), MTU: 3, MaxCMRetries: 15, RemoteResponseTimeout: 20, LocalResponseTimeout: 20, Private: ip}
		}},
		{"queries", 0x0111, minBacklog, func(i uint32, ip []byte) mad.Message {
			return &mad.SIDRREQ{RequestID: i, ServiceID: mad.ServiceID(mad.PortSpaceUDP, 7174), Private: ip}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, a, b *program) {
				cb, ca := b.channel(), a.channel()
				listening(b, cb, 1, test.space, "0.0.0.0:7174") // with a backlog of 5
				flood := func() {
					for i := range uint32(20000) {
						from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
						ip := mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: from, Dst: addrB})
						n.services[addrB].Receive(cmcore.Path{Local: addrB, Remote: from}, mad.Append(nil, mad.Header{TID: 1}, test.send(i+1, ip)))
					}
					time.Sleep(time.Second)
					synctest.Wait()
					if ids, events := len(b.m.ids), b.pending[cb]; ids > 2+test.most || events > test.most {
						t.Errorf("%d ids, %d events", ids, events)
					}
				}
				flood()
				client := resolved(a, ca, 2, test.space, "192.0.2.2:7174")
				a.must(ca, cmdConnect, 0, words(param(0x111, "friend", true), client, uint32(0)))
				for i := uint64(10); i < 1000; i++ {
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if b.pending[cb] == 0 {
						time.Sleep(time.Second)
						continue
					}
					r := b.must(cb, cmdGetEvent, eventLen, words(uint64(memStart)))
					e := seen{id: ne.Uint32(r[8:]), param: r[eventParam:]}
					n := 8
					if test.space == 0x0111 {
						n = 40
					}
					if string(e.param[n:n+6]) == "friend" {
						b.must(cb, cmdAccept, 0, words(i, param(0x222, "", true), e.id, uint32(0)))
						break
					}
					b.destroyID(cb, e.id)
				}
				if test.space == 0x0111 {
					a.expect(ca, eventEstablished)
				} else {
					a.expect(ca, eventConnectResponse)
				}
				flood()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if ids, events := len(b.m.ids), b.pending[cb]; ids > 2 || events > 1 {
					t.Errorf("%d ids and %d events stay", ids, events)
				}
			})
		})
	}
}
