package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/verbs"
)

// errProtocol is the error for a client that breaks the order of the conversation.
var errProtocol = errors.New("the client sent a request out of order")

// stepTimeout is how long a peer may take for a step of the conversation. Making
// thousands of queue pairs takes some seconds.
const stepTimeout = time.Minute

// Server is the other side of a measurement. It serves any number of clients side by
// side. The memory and the queue pairs of all their cases together are limited.
type Server struct {
	Dev        *verbs.Device
	Spin       time.Duration // time for which waiting for a completion polls before it blocks
	PeerDevice netip.Addr    // address of the clients' device, if valid (see rendezvous.CheckDevice)

	mu    sync.Mutex // guards the fields below, which count the resources of the cases in progress
	bytes int64
	qps   int
}

// Serve serves clients that connect to l. It returns when a client that has begun a case
// disconnects and was the only such client. An error of a connection before its first case
// does not end Serve; refused, if not nil, is called with it.
func (s *Server) Serve(ctx context.Context, l *rendezvous.Listener, refused func(net.Addr, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	measuring := 0
	var failure error
	err := l.Serve(ctx, func(ctx context.Context, conn *jsonline.Conn, stay func()) {
		defer conn.Close()
		c := &conversation{Server: s, conn: conn, began: func() {
			stay()
			mu.Lock()
			measuring++
			mu.Unlock()
		}}
		err := c.serve(ctx)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case c.measured:
			if failure == nil && ctx.Err() == nil {
				failure = err
			}
			if measuring--; measuring == 0 {
				cancel(errOver)
			}
		case err != nil && refused != nil && ctx.Err() == nil:
			refused(conn.RemoteAddr(), err)
		}
	})
	if errors.Is(err, errOver) {
		err = failure
	}
	return err
}

// errOver ends the listener of a server whose clients have gone.
var errOver = errors.New("the measurement is over")

// ServeConn serves one client until it hangs up.
func (s *Server) ServeConn(ctx context.Context, conn *jsonline.Conn) error {
	return (&conversation{Server: s, conn: conn, began: func() {}}).serve(ctx)
}

// reserve reserves the memory and the queue pairs of a case, and release frees them.
func (s *Server) reserve(c *Case) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes := int64(c.Size) * int64(c.QPs); s.bytes+bytes > maxMemory || s.qps+c.QPs > maxQPs {
		return fmt.Errorf("%d queue pairs with %d bytes each: other clients use %d queue pairs and %d bytes of at most %d and %d", c.QPs, c.Size, s.qps, s.bytes, maxQPs, maxMemory)
	}
	s.bytes, s.qps = s.bytes+int64(c.Size)*int64(c.QPs), s.qps+c.QPs
	return nil
}

func (s *Server) release(c *Case) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.qps = s.bytes-int64(c.Size)*int64(c.QPs), s.qps-c.QPs
}

// conversation is the conversation with one client.
type conversation struct {
	*Server
	conn     *jsonline.Conn
	measured bool   // a case has begun
	began    func() // called when the first case begins
}

// serve greets the client and answers its requests until it hangs up.
func (s *conversation) serve(ctx context.Context) error {
	if err := s.greet(ctx); err != nil {
		return err
	}
	for {
		s.conn.Timeout = stepTimeout
		if s.measured {
			s.conn.Timeout = 0 // the time between two cases is not limited
		}
		var r request
		err := s.conn.Hear(ctx, &r)
		switch {
		case errors.Is(err, jsonline.ErrHungUp):
			return nil
		case err != nil:
			return err
		}
		s.conn.Timeout = stepTimeout
		if r.Kind != kindCase {
			return errProtocol
		}
		if err := s.serveCase(ctx, &r); err != nil {
			return err
		}
	}
}

// greet exchanges the first lines with a client.
func (s *conversation) greet(ctx context.Context) error {
	var theirs hello
	if err := s.conn.Hear(ctx, &theirs); err != nil {
		return fmt.Errorf("%w: %w", jsonline.ErrStranger, err)
	}
	if err := s.conn.Tell(ctx, hello{program, version}); err != nil {
		return err
	}
	return theirs.check()
}

// serveCase does the server's side of a case. If the case fails, the client is told and
// serveCase returns nil. It returns an error only if the conversation cannot go on.
func (s *conversation) serveCase(ctx context.Context, r *request) error {
	if r.Case == nil {
		return errProtocol
	}
	_, err := r.Case.plan()
	if err != nil {
		// The number of lines that follow an invalid case is not known, so the conversation
		// cannot go on.
		return errors.Join(fmt.Errorf("the client asks for an invalid case: %w", err), s.refuse(ctx, err))
	}
	theirs := make([]remote, r.Case.QPs)
	for i := range theirs {
		if err := s.conn.Hear(ctx, &theirs[i]); err != nil {
			return err
		}
	}
	for i := range theirs {
		if err := rendezvous.CheckDevice(s.conn, theirs[i].Endpoint.GID, s.PeerDevice); err != nil {
			return errors.Join(err, s.refuse(ctx, err))
		}
	}
	if err := s.reserve(r.Case); err != nil {
		return s.refuse(ctx, err)
	}
	defer s.release(r.Case)
	e, err := newEnd(s.Dev, *r.Case, false, s.Spin)
	if err != nil {
		return s.refuse(ctx, err)
	}
	defer e.close()
	if err := e.connect(ctx, theirs, r); err != nil {
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
	if err := s.next(ctx, kindGo, new(request)); err != nil {
		return err
	}
	before, cpu := s.Dev.Transport().Counters(), cpuTime()

	// The goroutine below serves the case until the client sends stop.
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failure error
	wg.Go(func() { failure = e.serve(running) })
	if err := s.conn.Tell(ctx, answer{}); err != nil {
		return err
	}
	if !s.measured {
		s.measured = true
		s.began()
	}
	var done request
	s.conn.Timeout = 0 // the duration of a measurement is not limited
	err = s.next(ctx, kindStop, &done)
	s.conn.Timeout = stepTimeout
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	if failure != nil {
		return s.refuse(ctx, failure)
	}
	a := answer{
		Transport: since(s.Dev, before),
		CPU:       int64(cpuTime() - cpu), PID: os.Getpid(),
	}
	if err := e.check(done.Count > 0); err != nil {
		a.Bad = err.Error()
	}
	return s.conn.Tell(ctx, a)
}

// next receives a request and stores it in r. A request of another kind is an error.
func (s *conversation) next(ctx context.Context, kind string, r *request) error {
	if err := s.conn.Hear(ctx, r); err != nil {
		return err
	}
	if r.Kind != kind {
		return errProtocol
	}
	return nil
}

func (s *conversation) refuse(ctx context.Context, err error) error {
	return s.conn.Tell(ctx, answer{Error: err.Error()})
}

// serve receives messages and, in a ping-pong, sends them back, until the context
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
