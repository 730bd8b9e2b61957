package rdmacm

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// TestStrangersFlood sends a listening program 20,000 requests from as many addresses, more than
// it fetches. The number of ids and events stays bounded, a peer connects, and requests that the
// program never fetches end by themselves.
func TestStrangersFlood(t *testing.T) {
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
					if ids, events := b.counts(cb); ids > 2+test.most || events > test.most {
						t.Errorf("%d ids, %d events", ids, events)
					}
				}
				flood()
				client := resolved(a, ca, 2, test.space, "192.0.2.2:7174")
				a.must(ca, cmdConnect, 0, words(param(0x111, "friend", true), client, uint32(0)))
				for i := uint64(10); i < 1000; i++ {
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if _, events := b.counts(cb); events == 0 {
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
				if ids, events := b.counts(cb); ids > 2 || events > 1 {
					t.Errorf("%d ids and %d events stay", ids, events)
				}
			})
		})
	}
}

// request sends the host of b a request for a connection, of a QP with the same number as its id.
func (n *network) request(i uint32, from netip.Addr) {
	n.services[addrB].Receive(cmcore.Path{Local: addrB, Remote: from}, mad.Append(nil, mad.Header{TID: 1}, &mad.REQ{
		LocalID: i, QPN: i, ServiceID: mad.ServiceID(mad.PortSpaceTCP, 7174), MTU: 3, MaxCMRetries: 15, RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
		Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: from, Dst: addrB}),
	}))
}

// TestBacklog sends a program more requests than its backlog of 5, all but the last from one
// host. The program gets five, and one more for each that it answers or has lost. The request of
// the other host comes before the rest of the first host's.
func TestBacklog(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		cb := b.channel()
		listening(b, cb, 1, 0x0106, "0.0.0.0:7174")
		settle := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		fetch := func() seen {
			t.Helper()
			r := b.must(cb, cmdGetEvent, eventLen, words(uint64(memStart)))
			return seen{id: ne.Uint32(r[8:]), kind: ne.Uint32(r[12:]), param: r[eventParam:]}
		}
		for i := range uint32(10) {
			n.request(1+i, netip.MustParseAddr("192.0.2.66"))
		}
		n.request(1, netip.MustParseAddr("192.0.2.77"))
		settle(time.Millisecond)
		if got := b.pending[cb]; got != 5 {
			t.Fatalf("%d requests", got)
		}
		first, second := fetch(), fetch()
		if settle(time.Millisecond); b.pending[cb] != 3 {
			t.Errorf("%d requests after two were fetched", b.pending[cb])
		}
		for _, e := range []seen{first, second} {
			b.must(cb, cmdAccept, 0, words(uint64(3), param(0x222, "", true), e.id, uint32(0)))
		}
		if settle(time.Millisecond); b.pending[cb] != 5 {
			t.Errorf("%d requests after two were accepted", b.pending[cb])
		}
		for _, want := range []byte{3, 4, 5, 6, 1} { // QP 1 is the other host's
			if e := fetch(); e.param[0] != want {
				t.Errorf("a request of QP %d, want %d", e.param[0], want)
			}
		}
		if settle(answerTime); b.pending[cb] != 4 {
			t.Errorf("%d requests after the program lost five", b.pending[cb])
		}
	})
}

// TestDisplacedRequest accepts a request before and after newer ones have displaced it. The program
// sees a connection that its peer has left.
func TestDisplacedRequest(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, func(t *testing.T, n *network, a, b *program) {
			cb := b.channel()
			listening(b, cb, 1, 0x0106, "0.0.0.0:7174")
			send := func(i uint32) seen {
				from := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				n.request(i, from)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				r := b.must(cb, cmdGetEvent, eventLen, words(uint64(memStart)))
				return seen{id: ne.Uint32(r[8:]), kind: ne.Uint32(r[12:])}
			}
			accept := func(uid uint64, id uint32) {
				t.Helper()
				b.must(cb, cmdAccept, 0, words(uid, param(0x222, "", true), id, uint32(0)))
			}
			first := send(1)
			if before {
				accept(3, first.id)
			}
			var ends []seen
			for i := range uint32(512) {
				if e := send(2 + i); e.kind == eventConnectRequest {
					accept(uint64(1000+i), e.id)
				} else {
					ends = append(ends, e)
				}
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if !before {
				accept(3, first.id)
			}
			for e, ok := b.event(cb); ok; e, ok = b.event(cb) {
				if e.kind != eventConnectRequest {
					ends = append(ends, e)
				}
			}
			if len(ends) != 2 || ends[0].kind != eventEstablished || ends[1].kind != eventDisconnected || ends[0].id != first.id || ends[1].id != first.id {
				t.Errorf("events %+v", ends)
			}
		})
	}
}
