package perf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/udp/udpbench"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/verbs"
)

// errProtocol is a client that says something out of turn.
var errProtocol = errors.New("the client said something out of turn")

// server does the other side of what a client measures.
type server struct {
	conn *rendezvous.Conn
	dev  *verbs.Device
	spin time.Duration
}

// Greet exchanges the first lines with a client.
func Greet(ctx context.Context, conn *rendezvous.Conn) error {
	var theirs hello
	if err := conn.Hear(ctx, &theirs); err != nil {
		return err
	}
	if err := conn.Tell(ctx, hello{program, version}); err != nil {
		return err
	}
	return theirs.check()
}

// Serve answers a client that was greeted until that hangs up.
func Serve(ctx context.Context, conn *rendezvous.Conn, dev *verbs.Device, spin time.Duration) error {
	s := &server{conn, dev, spin}
	for {
		var r request
		err := conn.Hear(ctx, &r)
		switch {
		case errors.Is(err, rendezvous.ErrHungUp):
			return nil
		case err != nil:
			return err
		}
		switch r.Kind {
		case kindCase:
			err = s.serveCase(ctx, &r)
		case kindPing:
			err = s.servePing(ctx, &r)
		default:
			err = errProtocol
		}
		if err != nil {
			return err
		}
	}
}

// serveCase does the server's side of a case. What is wrong with the case is for
// the client to know; only what is wrong with the conversation is an error.
func (s *server) serveCase(ctx context.Context, r *request) error {
	if r.Case == nil {
		return errProtocol
	}
	_, err := r.Case.plan()
	if err != nil {
		// How many lines follow is not known.
		return errors.Join(fmt.Errorf("the client asks for something that cannot be: %w", err), s.refuse(ctx, err))
	}
	theirs := make([]remote, r.Case.QPs)
	for i := range theirs {
		if err := s.conn.Hear(ctx, &theirs[i]); err != nil {
			return err
		}
	}
	e, err := newEnd(s.dev, *r.Case, false, s.spin)
	if err != nil {
		return s.refuse(ctx, err)
	}
	defer e.close()
	if err := e.connect(ctx, theirs, r.MTU); err != nil {
		return s.refuse(ctx, err)
	}
	if err := s.conn.Tell(ctx, answer{}); err != nil {
		return err
	}
	for _, mine := range e.remotes() {
		if err := s.conn.Tell(ctx, mine); err != nil {
			return err
		}
	}
	if err := s.next(ctx, kindGo, nil); err != nil {
		return err
	}
	before, cpu := s.dev.Transport().Counters().Retransmitted, cpuTime()

	// The loop ends when the client says so.
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failure error
	wg.Go(func() { failure = e.serve(running) })
	if err := s.conn.Tell(ctx, answer{}); err != nil {
		return err
	}
	var done request
	err = s.next(ctx, kindStop, &done)
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	if failure != nil {
		return s.refuse(ctx, failure)
	}
	a := answer{
		Resent: s.dev.Transport().Counters().Retransmitted - before,
		CPU:    int64(cpuTime() - cpu), PID: os.Getpid(),
	}
	if err := e.check(done.Count > 0); err != nil {
		a.Bad = err.Error()
	}
	return s.conn.Tell(ctx, a)
}

// next hears a request of a kind.
func (s *server) next(ctx context.Context, kind string, r *request) error {
	if r == nil {
		r = new(request)
	}
	if err := s.conn.Hear(ctx, r); err != nil {
		return err
	}
	if r.Kind != kind {
		return errProtocol
	}
	return nil
}

func (s *server) refuse(ctx context.Context, err error) error {
	return s.conn.Tell(ctx, answer{Error: err.Error()})
}

// serve takes messages and, in a ping-pong, sends them back, until the context
// ends.
func (e *end) serve(ctx context.Context) error {
	defer e.rest()
	for {
		wcs, err := e.wait(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range wcs {
			if wcs[i].Opcode < verbs.OpRecv {
				continue
			}
			l := e.byQP[wcs[i].QPNum]
			if e.c.Test == Latency {
				if err := l.ball(e); err != nil {
					return err
				}
			}
			if err := l.receive(); err != nil {
				return err
			}
		}
	}
}

// servePing sends bare datagrams back.
func (s *server) servePing(ctx context.Context, r *request) error {
	c := pingConfig(r.Raw, s.dev.Addr(), time.Duration(r.Spin))
	u, err := udpbench.Serve(c)
	if err != nil {
		return s.refuse(ctx, err)
	}
	defer u.Close()
	if err := s.conn.Tell(ctx, answer{Addr: u.Addr().String()}); err != nil {
		return err
	}
	if err := s.next(ctx, kindStop, nil); err != nil {
		return err
	}
	return s.conn.Tell(ctx, answer{})
}

func pingConfig(raw bool, addr netip.Addr, spin time.Duration) udpbench.Config {
	if raw {
		return udpbench.Config{Variant: udpbench.Raw, Addr: addr}
	}
	return udpbench.Config{Variant: udpbench.Batched, Addr: addr, Spin: spin}
}
