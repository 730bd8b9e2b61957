package cm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// given is the time after which a peer that does not answer must be given up:
// 16 times 0.54 s.
const given = 9 * time.Second

// scripted is a peer whose messages a test sends and receives one by one, on QP 1 of a
// device without a connection manager.
type scripted struct {
	*party
	gsi *roce.GSI
	ah  *roce.AH
	in  chan mad.Message
}

// withScripted runs a test in virtual time with a device and a scripted peer. Afterwards
// both devices are closed: an object or a goroutine that the test left is an error.
func withScripted(t *testing.T, f func(t *testing.T, p *party, s *scripted)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := netem.Pair(1, netem.Faults{}, nil)
		p := newParty(t, a, a.LocalAddr().Addr())
		s := &scripted{party: newParty(t, b, b.LocalAddr().Addr()), in: make(chan mad.Message, 100)}
		s.open(p.dev.Addr(), func(m mad.Message) { s.in <- m })
		f(t, p, s)
		time.Sleep(time.Minute) // until time wait has ended
		s.gsi.Close()
		p.close()
		s.close()
	})
}

// open opens QP 1, whose messages come to receive. send sends to the device at an address.
func (s *scripted) open(to netip.Addr, receive func(mad.Message)) {
	s.t.Helper()
	var err error
	port := engine.PortOf(s.dev)
	if s.ah, err = port.NewAH(0, netip.AddrPortFrom(to, 4791), 0); err != nil {
		s.t.Fatal(err)
	}
	s.gsi, err = port.OpenGSI(func(d roce.Datagram) {
		_, m, err := mad.Parse(bytes.Clone(d.Payload))
		if err != nil {
			s.t.Errorf("received a MAD that does not parse: %v", err)
			return
		}
		receive(m)
	})
	fatal.If(s.t, err)
}

// send sends a message.
func (s *scripted) send(m mad.Message) {
	s.t.Helper()
	fatal.If(s.t, s.gsi.Send(s.ah, 1, mad.Append(nil, mad.Header{TID: 1}, m)))
}

// receive returns the next message, which must be of type M.
func receive[M mad.Message](s *scripted) M {
	s.t.Helper()
	select {
	case m := <-s.in:
		if m, ok := m.(M); ok {
			return m
		}
		s.t.Fatalf("received %v: %+v", m.Attr(), m)
	case <-time.After(time.Minute):
		s.t.Fatal("received nothing")
	}
	panic("unreachable")
}

// repeated receives the waiting messages with an attribute and returns their number. The
// first message with another attribute stays.
func (s *scripted) repeated(attr mad.Attr) (n int) {
	for {
		select {
		case m := <-s.in:
			if m.Attr() != attr {
				s.in <- m // the only one left
				return n
			}
			n++
		default:
			return n
		}
	}
}

const (
	peerID  = 0x7001
	peerQPN = 0x77
)

// request is a REQ of the scripted peer for port 7471.
func (s *scripted) request(to netip.Addr) *mad.REQ {
	self := s.dev.Addr()
	return &mad.REQ{
		LocalID: peerID, ServiceID: mad.ServiceID(mad.PortSpaceTCP, 7471), QPN: peerQPN, PSN: 5, ResponderResources: 1, InitiatorDepth: 1,
		RemoteResponseTimeout: 17, LocalResponseTimeout: 17, MaxCMRetries: 15, RetryCount: 7, RNRRetry: 7, MTU: 3, PKey: 0xffff,
		Path:    mad.PathInfo{LocalGID: mad.GID(self), RemoteGID: mad.GID(to), AckTimeout: 17},
		Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 999, Src: self, Dst: to}),
	}
}

// dialed is the result of a Dial in progress.
type dialed struct {
	c    *cm.Conn
	err  error
	took time.Duration
}

func dial(qp *verbs.QP, to netip.AddrPort) <-chan dialed {
	done, begin := make(chan dialed, 1), time.Now()
	go func() {
		c, err := cm.Dial(context.Background(), qp, to, nil)
		done <- dialed{c, err, time.Since(begin)}
	}()
	return done
}

// establish connects p to the scripted peer.
func (s *scripted) establish(p *party, qp *verbs.QP) (*cm.Conn, *mad.REQ) {
	s.t.Helper()
	done := dial(qp, netip.AddrPortFrom(s.dev.Addr(), 7471))
	req := receive[*mad.REQ](s)
	s.send(&mad.REP{LocalID: peerID, RemoteID: req.LocalID, QPN: peerQPN, PSN: 5, ResponderResources: 1, InitiatorDepth: 1})
	receive[*mad.RTU](s)
	d := <-done
	if d.err != nil {
		s.t.Fatal(d.err)
	}
	return d.c, req
}

func wantState(t *testing.T, qp *verbs.QP, want rdma.State) {
	t.Helper()
	if qp.State() != want {
		t.Errorf("the QP is in %v, not in %v", qp.State(), want)
	}
	if err := qp.Close(); err != nil {
		t.Error(err)
	}
}

// TestPeerSilent sends a REQ to a peer that never answers.
func TestPeerSilent(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		d := <-dial(qp, netip.AddrPortFrom(s.dev.Addr(), 7471))
		if !errors.Is(d.err, syscall.ETIMEDOUT) || d.took > given {
			t.Errorf("after %v: %v", d.took, d.err)
		}
		synctest.Wait()
		if n := s.repeated(mad.AttrREQ); n != 16 {
			t.Errorf("%d REQs, not 16", n)
		}
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonTimeout {
			t.Errorf("gave up with %+v", rej)
		}
		wantState(t, qp, rdma.StateReset)
	})
}

// TestPeerBusy answers a REQ with an MRA only. The dialer waits for the time that the MRA
// requests, repeats the REQ, and gives up.
func TestPeerBusy(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		done := dial(qp, netip.AddrPortFrom(s.dev.Addr(), 7471))
		req := receive[*mad.REQ](s)
		s.send(&mad.MRA{LocalID: peerID, RemoteID: req.LocalID, About: mad.AboutREQ, ServiceTimeout: 22}) // 17 s
		d := <-done
		if !errors.Is(d.err, syscall.ETIMEDOUT) || d.took < 17*time.Second || d.took > 18*time.Second+given {
			t.Errorf("after %v: %v", d.took, d.err)
		}
		synctest.Wait()
		s.repeated(mad.AttrREQ)
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonTimeout {
			t.Errorf("gave up with %+v", rej)
		}
		wantState(t, qp, rdma.StateReset)
	})
}

// TestPeerRejects answers a REQ, and a REQ after its MRA, with each reason.
func TestPeerRejects(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		for reason := mad.Reason(1); reason <= 36; reason++ {
			qp := p.qp()
			done := dial(qp, netip.AddrPortFrom(s.dev.Addr(), 7471))
			req := receive[*mad.REQ](s)
			rej := &mad.REJ{RemoteID: req.LocalID, About: mad.AboutREQ, Reason: reason, ARI: []byte{4}, Private: []byte("no")}
			if reason%2 == 0 {
				rej.LocalID = peerID
				s.send(&mad.MRA{LocalID: peerID, RemoteID: req.LocalID, About: mad.AboutREQ, ServiceTimeout: 22})
			}
			s.send(rej)
			s.send(rej) // a duplicate
			d := <-done
			var reject *cm.RejectError
			if !errors.As(d.err, &reject) || !errors.Is(d.err, syscall.ECONNREFUSED) || reject.Reason != cm.Reason(reason) || !bytes.HasPrefix(reject.PrivateData, []byte("no\x00")) {
				t.Errorf("reason %d: %v", reason, d.err)
			}
			wantState(t, qp, rdma.StateReset)
		}
	})
}

// TestPeerNotReady accepts the request of a peer that never sends an RTU.
func TestPeerNotReady(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l := listen(t, p, 7471)
		defer l.Close()
		s.send(s.request(p.dev.Addr()))
		req := accept(t, l)
		qp, begin := p.qp(), time.Now()
		_, err := req.Accept(context.Background(), qp, nil)
		if took := time.Since(begin); !errors.Is(err, syscall.ETIMEDOUT) || took > given {
			t.Errorf("after %v: %v", took, err)
		}
		synctest.Wait()
		if n := s.repeated(mad.AttrREP); n != 16 {
			t.Errorf("%d REPs, not 16", n)
		}
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonTimeout || rej.About != mad.AboutREP || rej.RemoteID != peerID {
			t.Errorf("gave up with %+v", rej)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestPeerGivesUp sends a REQ and then the REJ of a peer that gave up, while the request
// waits for Accept, and while the REP waits for the RTU.
func TestPeerGivesUp(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l := listen(t, p, 7471)
		defer l.Close()
		s.send(s.request(p.dev.Addr()))
		req := accept(t, l)
		s.send(&mad.REJ{LocalID: peerID, About: mad.AboutREQ, Reason: mad.ReasonTimeout})
		synctest.Wait()
		qp := p.qp()
		if _, err := req.Accept(context.Background(), qp, nil); err == nil {
			t.Error("a request was accepted whose peer has given up")
		}
		qp.Close()

		second := s.request(p.dev.Addr())
		second.LocalID, second.QPN = peerID+1, peerQPN+1
		s.send(second)
		req = accept(t, l)
		accepted := make(chan error, 1)
		qp = p.qp()
		go func() {
			_, err := req.Accept(context.Background(), qp, nil)
			accepted <- err
		}()
		rep := receive[*mad.REP](s)
		s.send(&mad.REJ{LocalID: peerID + 1, RemoteID: rep.LocalID, About: mad.AboutREP, Reason: mad.ReasonConsumer})
		var reject *cm.RejectError
		if err := <-accepted; !errors.As(err, &reject) || reject.Reason != cm.ReasonConsumer {
			t.Errorf("the peer refused the REP: %v", err)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestPeerKilled disconnects from a peer that has vanished: neither the DREQ nor its
// repetitions are answered.
func TestPeerKilled(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		c, _ := s.establish(p, qp)
		begin := time.Now()
		err := c.Close()
		if took := time.Since(begin); !errors.Is(err, syscall.ETIMEDOUT) || took > given {
			t.Errorf("after %v: %v", took, err)
		}
		<-c.Done()
		synctest.Wait()
		if n := s.repeated(mad.AttrDREQ); n != 16 {
			t.Errorf("%d DREQs, not 16", n)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestPeerKilledAfterAccept is TestPeerKilled for an accepted connection, whose peer asks
// in its REQ for the longest timeout and for no repetitions of the REP. A DREQ is
// repeated nevertheless.
func TestPeerKilledAfterAccept(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l := listen(t, p, 7471)
		defer l.Close()
		m := s.request(p.dev.Addr())
		m.LocalResponseTimeout, m.MaxCMRetries = 31, 0
		s.send(m)
		req := accept(t, l)
		qp := p.qp()
		accepted := make(chan *cm.Conn, 1)
		go func() {
			c, err := req.Accept(context.Background(), qp, nil)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
		rep := receive[*mad.REP](s)
		s.send(&mad.RTU{LocalID: peerID, RemoteID: rep.LocalID})
		c, begin := <-accepted, time.Now()
		err := c.Close()
		if took := time.Since(begin); !errors.Is(err, syscall.ETIMEDOUT) || took > given {
			t.Errorf("after %v: %v", took, err)
		}
		synctest.Wait()
		if n := s.repeated(mad.AttrDREQ); n != 16 {
			t.Errorf("%d DREQs, not 16", n)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestPeerDisconnects sends a DREQ, twice, and a late REP and RTU for a connection that
// has ended.
func TestPeerDisconnects(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l := listen(t, p, 1) // keeps the service of QP 1
		defer l.Close()
		qp := p.qp()
		c, req := s.establish(p, qp)
		dreq := &mad.DREQ{LocalID: peerID, RemoteID: req.LocalID, RemoteQPN: req.QPN}
		s.send(&mad.DREQ{LocalID: peerID, RemoteID: req.LocalID, RemoteQPN: req.QPN + 1}) // of another QP: ignored
		synctest.Wait()
		select {
		case <-c.Done():
			t.Error("a DREQ for another QP ended the connection")
		default:
		}
		if _, err := qp.PostRecv(verbs.RecvWR{ID: 1}); err != nil {
			t.Fatal(err)
		}
		s.send(dreq)
		receive[*mad.DREP](s)
		<-c.Done()
		flushed := make([]rdma.WC, 2)
		if n := p.cq.Poll(flushed); n != 1 || strings.Count(fmt.Sprint(flushed[0].Err), "disconnect") != 1 || strings.Count(fmt.Sprint(flushed[0].Err), "flush") > 1 {
			t.Errorf("%d flushed, because of %v", n, flushed[0].Err)
		}
		if c.Err() != nil {
			t.Error(c.Err())
		}
		s.send(dreq)
		receive[*mad.DREP](s)
		time.Sleep(time.Minute)
		s.send(dreq) // the connection is forgotten
		receive[*mad.DREP](s)
		s.send(&mad.REP{LocalID: peerID, RemoteID: req.LocalID, QPN: peerQPN})
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonInvalidCommID || rej.About != mad.AboutREP {
			t.Errorf("a REP for nothing: %+v", rej)
		}
		s.send(&mad.RTU{LocalID: peerID, RemoteID: req.LocalID})
		s.send(&mad.REJ{LocalID: peerID, RemoteID: req.LocalID, About: mad.AboutREQ, Reason: mad.ReasonConsumer})
		synctest.Wait()
		if n := len(s.in); n != 0 {
			t.Errorf("%d answers to an RTU and a REJ for nothing", n)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestPeerRestarts connects with the QP number of a connection that the peer has
// forgotten: the request is rejected as stale, and the old connection ends.
func TestPeerRestarts(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		c, req := s.establish(p, qp)
		l := listen(t, p, 7471)
		defer l.Close()
		again := s.request(p.dev.Addr())
		again.LocalID = peerID + 1
		s.send(again)
		dreq := receive[*mad.DREQ](s)
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonStale {
			t.Errorf("rejected with %+v", rej)
		}
		s.send(&mad.DREP{LocalID: dreq.RemoteID, RemoteID: req.LocalID})
		<-c.Done()
		s.send(again)
		if r, err := l.Accept(context.Background()); err != nil || r.Reject(cm.ReasonConsumer, nil) != nil {
			t.Error(err)
		}
		wantState(t, qp, rdma.StateErr)
	})
}

// TestListenerGone closes the listener while a peer waits for its answer.
func TestListenerGone(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l := listen(t, p, 7471)
		s.send(s.request(p.dev.Addr()))
		synctest.Wait()
		l.Close()
		if rej := receive[*mad.REJ](s); rej.Reason != mad.ReasonConsumer || rej.RemoteID != peerID {
			t.Errorf("a request that waited: %+v", rej)
		}
		s.send(s.request(p.dev.Addr()))
		synctest.Wait()
		select {
		case m := <-s.in:
			if rej, ok := m.(*mad.REJ); !ok || rej.Reason != mad.ReasonInvalidServiceID {
				t.Errorf("a later request: %+v", m)
			}
		default:
			t.Error("a later request was not answered")
		}
	})
}

// TestResolveSilent sends a SIDR_REQ to a peer that never answers, and to one that
// answers with each status.
func TestResolveSilent(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		to, begin := netip.AddrPortFrom(s.dev.Addr(), 7471), time.Now()
		_, err := cm.Resolve(context.Background(), p.dev, to, nil)
		if took := time.Since(begin); !errors.Is(err, syscall.ETIMEDOUT) || took > given {
			t.Errorf("after %v: %v", took, err)
		}
		synctest.Wait()
		if n := s.repeated(mad.AttrSIDRREQ); n != 16 {
			t.Errorf("%d SIDR_REQs, not 16", n)
		}
		for status := mad.SIDRUnsupported; status <= mad.SIDRVersion+1; status++ {
			resolved := make(chan error, 1)
			go func() {
				_, err := cm.Resolve(context.Background(), p.dev, to, nil)
				resolved <- err
			}()
			m := receive[*mad.SIDRREQ](s)
			answer := &mad.SIDRREP{RequestID: m.RequestID, Status: status, ServiceID: m.ServiceID}
			s.send(answer)
			s.send(answer)
			if err := <-resolved; !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("status %d: %v", status, err)
			}
		}
	})
}

// TestQueryRepeated repeats a query that was answered: the application sees it once, and
// the answer is sent again as long as the peer repeats its query.
func TestQueryRepeated(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		l, err := cm.ListenDatagram(p.dev, 7471, nil)
		fatal.If(t, err)
		self := s.dev.Addr()
		m := &mad.SIDRREQ{
			RequestID: 9, PKey: 0xffff, ServiceID: mad.ServiceID(mad.PortSpaceUDP, 7471),
			Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 999, Src: self, Dst: p.dev.Addr()}),
		}
		s.send(m)
		q := accept(t, l)
		s.send(m) // not answered yet
		fatal.If(t, q.Reply(0x55, cm.DefaultQKey, nil))
		for range 16 { // every 4.3 s, as Linux does; every second one is lost
			if rep := receive[*mad.SIDRREP](s); rep.QPN != 0x55 || rep.RequestID != 9 {
				t.Errorf("answer %+v", rep)
			}
			time.Sleep(8600 * time.Millisecond)
			s.send(m)
		}
		receive[*mad.SIDRREP](s)
		l.Close()
	})
}

// TestDeviceClosed closes a device with a connection, a Dial and a Resolve in progress, and
// with a request and a query that were never answered. Everything must end.
func TestDeviceClosed(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		c, _ := s.establish(p, qp)
		l := listen(t, p, 7471)
		d, err := cm.ListenDatagram(p.dev, 7471, nil)
		fatal.If(t, err)
		m := s.request(p.dev.Addr())
		m.LocalID, m.QPN = peerID+1, peerQPN+1
		s.send(m)
		s.send(&mad.SIDRREQ{RequestID: 9, ServiceID: mad.ServiceID(mad.PortSpaceUDP, 7471), Private: m.Private})
		req := accept(t, l)
		q := accept(t, d)
		waiting := p.qp()
		dialing := dial(waiting, netip.AddrPortFrom(s.dev.Addr(), 7472))
		resolving := make(chan error, 1)
		go func() {
			_, err := cm.Resolve(context.Background(), p.dev, netip.AddrPortFrom(s.dev.Addr(), 7472), nil)
			resolving <- err
		}()
		synctest.Wait()
		fatal.If(t, errors.Join(qp.Close(), waiting.Close(), p.cq.Close(), p.pd.Close(), p.dev.Close()))
		<-c.Done()
		if !errors.Is(c.Err(), net.ErrClosed) || !errors.Is(c.Close(), net.ErrClosed) {
			t.Errorf("the connection: %v", c.Err())
		}
		if d := <-dialing; !errors.Is(d.err, net.ErrClosed) {
			t.Errorf("dial: %v", d.err)
		}
		if err := <-resolving; !errors.Is(err, net.ErrClosed) {
			t.Errorf("resolve: %v", err)
		}
		if req.Reject(cm.ReasonConsumer, nil) == nil || q.Reject(nil) == nil {
			t.Error("a request was answered after the device was closed")
		}
		l.Close()
		d.Close()
	})
}

// TestDeviceClosedAfterEnd closes a device as soon as its connection has ended, by the
// peer's DREQ or by a refusal. The peer must get the answer.
func TestDeviceClosedAfterEnd(t *testing.T) {
	withScripted(t, func(t *testing.T, p *party, s *scripted) {
		qp := p.qp()
		c, req := s.establish(p, qp)
		l := listen(t, p, 7471)
		m := s.request(p.dev.Addr())
		m.LocalID, m.QPN = peerID+1, peerQPN+1
		s.send(m)
		r := accept(t, l)
		s.send(&mad.DREQ{LocalID: peerID, RemoteID: req.LocalID, RemoteQPN: req.QPN})
		<-c.Done()
		fatal.If(t, errors.Join(r.Reject(cm.ReasonConsumer, nil), qp.Close(), p.cq.Close(), p.pd.Close(), p.dev.Close()))
		receive[*mad.DREP](s)
		receive[*mad.REJ](s)
		l.Close()
	})
}
