package cmcore

import (
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/net/mad"
)

// TestCaps exchanges capabilities between devices that have them, with one that has none,
// and together with an application's own options.
func TestCaps(t *testing.T) {
	app := ECE{Vendor: 0x15b3, Options: 0x11}
	for name, tc := range map[string]struct {
		a, b       uint32 // capabilities
		transport  mad.Transport
		req, rep   ECE // of the applications
		want       uint32
		seen, back ECE // by the applications
	}{
		"both":               {a: 3, b: 5, want: 1},
		"payloads":           {a: 139<<8 | 1, b: 22<<8 | 1, want: 22<<8 | 1},
		"payload of one":     {a: 139<<8 | 1, b: 1, want: 1},
		"no options of apps": {a: 1, b: 1, req: ECE{Vendor: 0x15b3}, rep: ECE{Vendor: 0x15b3}, want: 1},
		"standard listener":  {a: 1},
		"standard client":    {b: 1},
		"unreliable":         {a: 1, b: 1, transport: mad.UC},
		"app asks":           {a: 1, b: 1, req: app, seen: app},
		"app answers":        {a: 1, b: 1, req: app, rep: app, seen: app, back: app},
		"app answers alone":  {a: 1, b: 1, rep: app, back: app},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, n *network, a, b *Service) {
				a.o.Caps, b.o.Caps = func() uint32 { return tc.a }, func() uint32 { return tc.b }
				var y *Conn
				_, err := b.Listen(ListenConfig{ServiceID: testService, Conn: func(c *Conn) Handler {
					y = c
					r := reply(1)
					r.ECE = tc.rep
					if err := c.Accept(r); err != nil {
						t.Error(err)
					}
					return func(Event) {}
				}})
				if err != nil {
					t.Fatal(err)
				}
				p := request(0)
				p.ECE, p.Transport = tc.req, tc.transport
				x := connect(t, a, pathA, p)
				n.settle(time.Second)
				if x.c.State() != StateEstablished {
					t.Fatalf("state %v", x.c.State())
				}
				if x.c.Caps() != tc.want || y.Caps() != tc.want || a.Caps(addrB, 0x201) != tc.want || b.Caps(addrA, 0x100) != tc.want {
					t.Errorf("agreed on %d and %d (by QP %d and %d), not %d", x.c.Caps(), y.Caps(), a.Caps(addrB, 0x201), b.Caps(addrA, 0x100), tc.want)
				}
				if got := y.Request().ECE; got != tc.seen {
					t.Errorf("the listener's application sees %+v", got)
				}
				if got := x.events[0].ECE; got != tc.back {
					t.Errorf("the client's application sees %+v", got)
				}
				if a.Caps(addrB, 0x999) != 0 {
					t.Error("a QP without a connection has capabilities")
				}
			})
		})
	}
}
