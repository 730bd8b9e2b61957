package cm_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// patience limits waits. No result depends on it.
const patience = 20 * time.Second

var (
	serverAddr = netip.MustParseAddr("192.0.2.1")
	clientAddr = netip.MustParseAddr("192.0.2.2")
)

// party is a device on a network of the test.
type party struct {
	t   *testing.T
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
}

func newParty(t *testing.T, conn packetconn.Conn, addr netip.Addr) *party {
	t.Helper()
	dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: conn})
	fatal.If(t, err)
	return onDevice(t, dev)
}

// onDevice makes the objects of a party on its device.
func onDevice(t *testing.T, dev *verbs.Device) *party {
	t.Helper()
	p := &party{t: t, dev: dev}
	var err error
	if p.pd, err = p.dev.NewPD(); err != nil {
		t.Fatal(err)
	}
	if p.cq, err = p.dev.NewCQ(256); err != nil {
		t.Fatal(err)
	}
	return p
}

// close closes the device, whose objects must all be gone by then.
func (p *party) close() {
	p.t.Helper()
	if err := errors.Join(p.cq.Close(), p.pd.Close(), p.dev.Close()); err != nil {
		p.t.Error(err)
	}
}

func (p *party) qp() *verbs.QP { return p.typed(rdma.RC) }

func (p *party) typed(t rdma.QPType) *verbs.QP {
	p.t.Helper()
	qp, err := p.pd.NewQP(verbs.QPAttr{Type: t, SendCQ: p.cq})
	fatal.If(p.t, err)
	return qp
}

// parties returns a server's and a client's device on one network.
func parties(t *testing.T) (server, client *party) {
	t.Helper()
	return partiesOn(t, inproc.NewNetwork(nil))
}

func partiesOn(t *testing.T, n *inproc.Network) (server, client *party) {
	t.Helper()
	return newParty(t, listenOn(t, n, serverAddr), serverAddr), newParty(t, listenOn(t, n, clientAddr), clientAddr)
}

func listenOn(t *testing.T, n *inproc.Network, a netip.Addr) packetconn.Conn {
	t.Helper()
	c, err := n.Listen(netip.AddrPortFrom(a, 4791))
	fatal.If(t, err)
	return c
}

// listen returns a listener of p on a port.
func listen(t *testing.T, p *party, port uint16) *cm.Listener {
	t.Helper()
	l, err := cm.Listen(p.dev, port, nil)
	fatal.If(t, err)
	return l
}

// accept returns the next request or query of a listener.
func accept[R any](t *testing.T, l interface {
	Accept(context.Context) (R, error)
}) R {
	t.Helper()
	r, err := l.Accept(context.Background())
	fatal.If(t, err)
	return r
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// serve accepts every request with a new QP and sends the connections on the channel.
func serve(t *testing.T, p *party, opts *cm.ConnOptions) (netip.AddrPort, <-chan *cm.Conn) {
	t.Helper()
	l := listen(t, p, 0)
	t.Cleanup(func() { l.Close() })
	conns := make(chan *cm.Conn, 16)
	go func() {
		for {
			req, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			conn, err := req.Accept(context.Background(), p.qp(), opts)
			if err != nil {
				continue
			}
			conns <- conn
		}
	}()
	return l.Addr().(cm.Addr).AddrPort(), conns
}

func TestDial(t *testing.T) {
	server, client := parties(t)
	addr, conns := serve(t, server, &cm.ConnOptions{PrivateData: []byte("welcome"), ConnectOptions: verbs.ConnectOptions{MaxRdAtomic: 3}})
	qp := client.qp()
	c, err := cm.Dial(within(t), qp, addr, &cm.ConnOptions{PrivateData: []byte("hello"), ConnectOptions: verbs.ConnectOptions{MTU: 1024, MaxRdAtomic: 5}})
	fatal.If(t, err)
	s := <-conns
	if !bytes.HasPrefix(c.PrivateData(), []byte("welcome\x00")) || !bytes.HasPrefix(s.PrivateData(), []byte("hello\x00")) {
		t.Errorf("private data %q and %q", c.PrivateData(), s.PrivateData())
	}
	if c.RemoteAddr().String() != addr.String() || s.RemoteAddr().String() != c.LocalAddr().String() || s.LocalAddr().String() != addr.String() {
		t.Errorf("addresses %v %v, %v %v", c.LocalAddr(), c.RemoteAddr(), s.LocalAddr(), s.RemoteAddr())
	}
	for _, q := range []*verbs.QP{c.QP(), s.QP()} {
		m := engine.QPOf(q).Query()
		if m.State != rdma.StateRTS || m.PathMTU != ibv.MTU1024 || m.MaxRdAtomic != 3 || m.MaxDestRdAtomic != 3 {
			t.Errorf("%+v", m)
		}
	}
	if engine.QPOf(c.QP()).Query().DestQPN != s.QP().Num() || engine.QPOf(s.QP()).Query().DestQPN != c.QP().Num() {
		t.Error("the QPs are not connected to each other")
	}

	// The connection ends on both sides, whichever closes it.
	fatal.If(t, s.Close())
	<-c.Done()
	if c.Err() != nil || s.Err() != nil || c.QP().State() != rdma.StateErr || s.QP().State() != rdma.StateErr {
		t.Errorf("after the end: %v %v %v %v", c.Err(), s.Err(), c.QP().State(), s.QP().State())
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Errorf("a second Close: %v", err)
	}

	// The QP can be connected again.
	fatal.If(t, qp.SetState(rdma.StateReset))
	if c, err = cm.Dial(within(t), qp, addr, nil); err != nil {
		t.Fatal(err)
	}
	<-conns
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnreliable connects QPs of type UC, and checks that both sides must have
// the same type: a listener accepts one type, and the request is refused if
// Accept fails.
func TestUnreliable(t *testing.T) {
	server, client := parties(t)
	l, err := cm.Listen(server.dev, 7000, &cm.ListenOptions{Type: rdma.UC})
	fatal.If(t, err)
	defer l.Close()
	if _, err := cm.Listen(server.dev, 7001, &cm.ListenOptions{Type: rdma.UD}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a listener for UD QPs: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		req, err := l.Accept(context.Background())
		if err != nil {
			ended <- err
			return
		}
		if _, err := req.Accept(context.Background(), server.typed(rdma.RC), nil); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("accepted with an RC QP: %v", err)
		}
		if req, err = l.Accept(context.Background()); err != nil {
			ended <- err
			return
		}
		c, err := req.Accept(context.Background(), server.typed(rdma.UC), nil)
		if err == nil {
			<-c.Done()
		}
		ended <- err
	}()
	addr := netip.AddrPortFrom(serverAddr, 7000)
	if _, err := cm.Dial(within(t), client.typed(rdma.UD), addr, nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a UD QP: %v", err)
	}
	refused := func(qp *verbs.QP) {
		t.Helper()
		var r *cm.RejectError
		if _, err := cm.Dial(within(t), qp, addr, nil); !errors.As(err, &r) || r.Reason != 9 {
			t.Errorf("a QP of type %v: %v", qp.Type(), err)
		}
	}
	refused(client.typed(rdma.RC)) // by the listener
	refused(client.typed(rdma.UC)) // because the program has an RC QP for it
	c, err := cm.Dial(within(t), client.typed(rdma.UC), addr, nil)
	fatal.If(t, err)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	server, client := parties(t)
	l := listen(t, server, 7000)
	defer l.Close()
	if _, err := cm.Listen(server.dev, 7000, nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	qp := client.qp()
	_, err := cm.Dial(within(t), qp, netip.AddrPortFrom(serverAddr, 7001), nil)
	var reject *cm.RejectError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &reject) || reject.Reason != cm.ReasonNoListener {
		t.Errorf("a port without listener: %v", err)
	}
	if qp.State() != rdma.StateReset {
		t.Errorf("the QP is in %v", qp.State())
	}
}

func TestListenerClose(t *testing.T) {
	server, client := parties(t)
	l := listen(t, server, 7000)
	dial(client.qp(), netip.AddrPortFrom(serverAddr, 7000))
	accept(t, l) // the request is not answered
	dial(client.qp(), netip.AddrPortFrom(serverAddr, 7000))
	accepted := make(chan error, 1)
	go func() {
		for {
			if _, err := l.Accept(context.Background()); err != nil {
				accepted <- err
				return
			}
		}
	}()
	l.Close()
	l.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

func TestDialCanceled(t *testing.T) {
	server, client := parties(t)
	l := listen(t, server, 7000)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	dialed := make(chan error, 1)
	go func() {
		_, err := cm.Dial(ctx, client.qp(), netip.AddrPortFrom(serverAddr, 7000), nil)
		dialed <- err
	}()
	req := accept(t, l)
	cancel()
	if err := <-dialed; !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v", err)
	}
	if _, err := req.Accept(within(t), server.qp(), nil); err == nil {
		t.Error("a request of a peer that gave up was accepted")
	}
}

func TestTooMuchPrivateData(t *testing.T) {
	server, client := parties(t)
	addr, _ := serve(t, server, nil)
	for _, o := range []*cm.ConnOptions{{PrivateData: make([]byte, 57)}, {ConnectOptions: verbs.ConnectOptions{MTU: 1000}}} {
		if _, err := cm.Dial(within(t), client.qp(), addr, o); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := cm.Resolve(within(t), client.dev, addr, make([]byte, 181)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("resolve: %v", err)
	}
}

func TestResolve(t *testing.T) {
	server, client := parties(t)
	l, err := cm.ListenDatagram(server.dev, 0, nil)
	fatal.If(t, err)
	defer l.Close()
	go func() {
		for n := range 2 {
			q, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			if n == 0 {
				q.Reply(0x77, cm.DefaultQKey, q.PrivateData[:5])
			} else {
				q.Reject(nil)
			}
		}
	}()
	addr := l.Addr().(cm.Addr).AddrPort()
	d, err := cm.Resolve(within(t), client.dev, addr, []byte("where"))
	if err != nil || d.QPN != 0x77 || d.QKey != cm.DefaultQKey || d.Addr != serverAddr || !bytes.HasPrefix(d.PrivateData, []byte("where\x00")) {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := cm.Resolve(within(t), client.dev, addr, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a refused query: %v", err)
	}
}

// TestContextEnds checks that a context ends Accept, and that the connection has ended when a
// context ends Disconnect.
func TestContextEnds(t *testing.T) {
	server, client := parties(t)
	l := listen(t, server, 0)
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := l.Accept(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Accept with a context that ended: %v", err)
	}
	addr, _ := serve(t, server, nil)
	c, err := cm.Dial(within(t), client.qp(), addr, nil)
	fatal.If(t, err)
	if err := c.Disconnect(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Disconnect with a context that ended: %v", err)
	}
	<-c.Done()
	if st := c.QP().State(); st != rdma.StateErr {
		t.Errorf("the QP of a connection that ended is in state %v", st)
	}
}
