package cmcore

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/net/mad"
)

// FuzzReceive sends arbitrary sequences of MADs to a service. Their numbers come from a
// small set, so that they match existing connections. Nothing may panic, the state of the
// service must stay bounded, and everything must end once the applications have closed
// their connections.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 4, 1, 5, 1})
	f.Add([]byte{0, 1, 0, 1, 1, 1, 2, 1, 3, 1, 6, 1, 7, 1, 8, 1})
	attrs := []mad.Attr{mad.AttrREQ, mad.AttrMRA, mad.AttrREJ, mad.AttrREP, mad.AttrRTU, mad.AttrDREQ, mad.AttrDREP, mad.AttrSIDRREQ, mad.AttrSIDRREP}
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			const most = 16
			s := n.add(addrB, Options{MaxConns: most})
			defer s.Close()
			var conns []*Conn
			keep := func(e Event) {
				if e.Kind == Replied {
					e.Conn.Ready(nil)
				}
			}
			s.Listen(ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
				conns = append(conns, c)
				if len(conns)%2 == 0 {
					c.Accept(reply(1))
				}
				return keep
			}})
			var queries []*Query
			s.Listen(ListenConfig{ServiceID: mad.ServiceID(mad.PortSpaceUDP, 1), Query: func(q *Query) func() {
				queries = append(queries, q)
				return nil
			}})
			var ids []uint32
			for i := 0; i+1 < len(script) && i < 400; i += 2 {
				op, arg := script[i], uint32(script[i+1])
				if op%16 == 15 {
					if c, err := s.Connect(Path{Local: addrB, Remote: addrA}, request(arg), keep); err == nil {
						conns = append(conns, c)
					}
					continue
				}
				ids = ids[:0]
				for _, c := range conns {
					ids = append(ids, c.localID)
				}
				remote := uint32(0)
				if len(ids) > 0 {
					remote = ids[int(arg)%len(ids)]
				}
				b := make([]byte, mad.Len)
				copy(b, mad.Append(nil, mad.Header{TID: 1}, &mad.RTU{LocalID: 1 + arg%4, RemoteID: remote}))
				attr := attrs[int(op)%len(attrs)]
				binary.BigEndian.PutUint16(b[16:], uint16(attr))
				switch attr {
				case mad.AttrREQ:
					o := request(arg % 8)
					b = mad.Append(nil, mad.Header{TID: 1}, &mad.REQ{LocalID: 1 + arg%4, QPN: arg % 8, ServiceID: o.ServiceID, MTU: 3, MaxCMRetries: 3, Private: o.Private})
				case mad.AttrREP:
					b = mad.Append(nil, mad.Header{TID: 1}, &mad.REP{LocalID: 1 + arg%4, RemoteID: remote, QPN: arg % 8})
				case mad.AttrSIDRREQ:
					b = mad.Append(nil, mad.Header{TID: 1}, &mad.SIDRREQ{RequestID: arg, ServiceID: mad.ServiceID(mad.PortSpaceUDP, 1), Private: request(0).Private})
				}
				s.Receive(Path{Local: addrB, Remote: addrA}, b)
				n.settle(time.Duration(op) * time.Millisecond)
				if len(s.conns)+len(s.queries) > most || len(s.asked) > most+128 {
					t.Fatalf("%d connections and %d queries, more than %d and %d", len(s.conns)+len(s.queries), len(s.asked), most, most+128)
				}
			}
			for _, c := range conns {
				c.Close()
			}
			for _, q := range queries {
				q.Close()
			}
			n.settle(10 * time.Minute)
			if len(s.conns)+len(s.remote)+len(s.qpns)+len(s.asked)+guests(s) != 0 {
				t.Fatal("something stays")
			}
		})
	})
}
