package rendezvous

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/verbs"
)

// TestManySilent connects more silent strangers than a listener serves, and keeps their
// connections open. A friend, a peer that says what is expected, connects last and is served.
func TestManySilent(t *testing.T) {
	l := listen(t)
	wait := acceptLater(t, timeout(t), l, nil)
	var last *jsonline.Conn
	for range maxStrangers + maxConns {
		last = dial(t, l)
	}
	c := dial(t, l)
	fatal.If(t, c.Tell(timeout(t), line{"friend"}))
	wait().Close()
	last.Close()
}

// TestDisplaced checks that the newest strangers of a host displace its oldest.
func TestDisplaced(t *testing.T) {
	l := listen(t)
	ctx, cancel := context.WithCancel(timeout(t))
	ended := make(chan string, 1000)
	served := make(chan error, 1)
	go func() {
		served <- l.serve(ctx, func(ctx context.Context, c *jsonline.Conn) {
			defer c.Close()
			var got line
			if err := errors.Join(c.Hear(ctx, &got), c.Tell(ctx, got)); err != nil {
				return
			}
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), errDisplaced) {
				ended <- got.Text
			}
		})
	}()
	for _, text := range []string{"old", "new"} {
		for range maxOfHost {
			c := dial(t, l)
			if err := errors.Join(c.Tell(timeout(t), line{text}), c.Hear(timeout(t), new(line))); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	for range maxOfHost {
		if got := <-ended; got != "old" {
			t.Errorf("%q was displaced", got)
		}
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(ended) > 0 {
		t.Errorf("%q was displaced", <-ended)
	}
}

// TestFloodCM floods a listener of the connection manager with requests for RC that are
// answered with an MRA, and for UC. A friend connects meanwhile.
func TestFloodCM(t *testing.T) {
	for _, transport := range []mad.Transport{mad.RC, mad.UC} {
		inBubble(t, func(t *testing.T, a, b, stranger *verbs.Device) {
			l, err := ListenCM(a, 7471)
			fatal.If(t, err)
			wait := acceptLater(t, t.Context(), l, nil)
			ctx, cancel := context.WithCancel(t.Context())
			flooded := make(chan struct{})
			go func() {
				defer close(flooded)
				flood(t, ctx, stranger, a.Addr(), transport)
			}()
			time.Sleep(2 * time.Second)
			c, err := DialCM(t.Context(), b, "192.0.2.1:7471", 0)
			fatal.If(t, err)
			if err := c.Tell(t.Context(), line{"friend"}); err != nil {
				t.Error(err)
			}
			accepted := wait()
			cancel()
			<-flooded
			c.Close()
			accepted.Close()
		})
	}
}

// flood sends 1000 requests a second from QP 1 of a device, and answers REPs with an MRA.
func flood(t *testing.T, ctx context.Context, from *verbs.Device, to netip.Addr, transport mad.Transport) {
	port := engine.PortOf(from)
	ah, err := port.NewAH(0, netip.AddrPortFrom(to, 4791), 0)
	if err != nil {
		t.Error(err)
		return
	}
	var gsi *roce.GSI
	send := func(m mad.Message) { _ = gsi.Send(ah, 1, mad.Append(nil, mad.Header{TID: 1}, m)) }
	gsi, err = port.OpenGSI(func(d roce.Datagram) {
		if _, m, _ := mad.Parse(d.Payload); m != nil {
			if rep, ok := m.(*mad.REP); ok {
				send(&mad.MRA{LocalID: rep.RemoteID, RemoteID: rep.LocalID, About: mad.AboutREP, ServiceTimeout: 31})
			}
		}
	})
	if err != nil {
		t.Error(err)
		return
	}
	defer gsi.Close()
	for i := uint32(1); ctx.Err() == nil; i++ {
		send(&mad.REQ{
			LocalID: i, QPN: i, ServiceID: mad.ServiceID(mad.PortSpaceTCP, 7471), Transport: transport, MTU: 3, MaxCMRetries: 15,
			RemoteResponseTimeout: 20, LocalResponseTimeout: 20, Path: mad.PathInfo{AckTimeout: 17},
			Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: from.Addr(), Dst: to}),
		})
		time.Sleep(time.Millisecond)
	}
}
