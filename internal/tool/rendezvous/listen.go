package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// Bounds of a listener. A stranger beyond maxStrangers displaces the oldest stranger, and one
// beyond maxOfHost from its address the oldest from that address. maxConns bounds all connections,
// including displaced ones that are still being closed; further ones wait in the listener's backlog.
const (
	maxStrangers = 128
	maxOfHost    = 32
	maxConns     = 256
)

// Listener waits for peers.
type Listener struct{ l listener }

// listener accepts connections over TCP or over the connection manager. accept waits for the
// request of a peer; connect answers the request and returns the connection.
type listener interface {
	accept() (peer net.Addr, connect func(context.Context) (net.Conn, error), err error)
	close() error
}

// tcpListener takes connections of TCP.
type tcpListener struct{ *net.TCPListener }

func (l tcpListener) close() error { return l.Close() }

func (l tcpListener) accept() (net.Addr, func(context.Context) (net.Conn, error), error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, nil, err
	}
	if raw, err := c.SyscallConn(); err == nil {
		controlLossy("", "", raw) // the socket has not inherited the listener's option
	}
	return c.RemoteAddr(), func(context.Context) (net.Conn, error) { return c, nil }, nil
}

// Listen opens the TCP port that peers connect to.
func Listen(addr netip.AddrPort) (*Listener, error) {
	c := net.ListenConfig{Control: controlLossy}
	l, err := c.Listen(context.Background(), "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	return &Listener{tcpListener{l.(*net.TCPListener)}}, nil
}

// errDisplaced is the cause with which the context of a displaced stranger is cancelled.
var errDisplaced = errors.New("displaced by a newer connection: too many peers have not yet identified themselves")

// strangers holds the conversations that newer ones may displace.
type strangers struct {
	mu    sync.Mutex // guards the following field
	table *fair.Table[context.CancelCauseFunc]
}

// add adds a conversation, whose context end cancels, and ends the conversation that it
// displaces, if any. remove removes it.
func (s *strangers) add(peer netip.Addr, end context.CancelCauseFunc) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.table.Displaced(peer); old != nil {
		s.table.Remove(old)
		old.Value(errDisplaced)
	}
	e := s.table.Add(peer, end)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.table.Remove(e)
	}
}

// serve calls handle for each connection, in a goroutine of its own, until the context ends,
// and then waits for the calls to return. handle owns the connection. The context of handle may be
// cancelled in favour of a newer connection. serve closes the listener and returns the
// context's cause, or the error because of which it could not accept connections.
func (l *Listener) serve(ctx context.Context, handle func(ctx context.Context, c *jsonline.Conn)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		l.l.close() // ends accept
		close(closed)
	})
	defer func() {
		if stop() {
			l.l.close()
			return
		}
		<-closed
	}()
	var serving sync.WaitGroup
	defer serving.Wait()
	guests := strangers{table: fair.New[context.CancelCauseFunc](maxStrangers, maxOfHost)}
	free := make(chan struct{}, maxConns)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		peer, connect, err := l.l.accept()
		if err != nil {
			cancel(err) // if the context has ended already, its cause stays
			return context.Cause(ctx)
		}
		from, _ := hostAddr(peer)
		ctx, end := context.WithCancelCause(ctx)
		remove := guests.add(from, end)
		serving.Go(func() {
			defer func() { <-free }()
			defer end(nil)
			defer remove()
			step, done := context.WithTimeout(ctx, StepTimeout)
			defer done()
			conn, err := connect(step)
			if err != nil {
				return // the peer gave up, or never confirmed
			}
			c := jsonline.New(conn)
			c.Timeout = StepTimeout
			handle(ctx, c)
		})
	}
}

// errTaken is the cause with which Accept cancels the remaining conversations.
var errTaken = errors.New("another peer came first")

// Accept calls shake for every peer that connects, in a goroutine of its own, and returns the
// result of the first call that succeeds. It then cancels the context of the others and waits
// for them. refused, if not nil, is called for each connection for which shake has returned an
// error, one call at a time.
func Accept[T io.Closer](ctx context.Context, l *Listener, shake func(context.Context, *jsonline.Conn) (T, error), refused func(net.Addr, error)) (T, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var taken bool
	var result T
	err := l.serve(waiting, func(ctx context.Context, c *jsonline.Conn) {
		t, err := shake(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			c.Close()
			if refused != nil && ctx.Err() == nil {
				refused(c.RemoteAddr(), err)
			}
		case taken:
			t.Close()
			c.Close()
		default:
			taken, result = true, t
			cancel(errTaken)
		}
	})
	if taken {
		err = nil
	}
	return result, err
}
