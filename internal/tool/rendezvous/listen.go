package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// maxConns is the largest number of connections that a listener serves at the same
// time. Further ones wait in the backlog.
const maxConns = 128

// Listener waits for peers.
type Listener struct{ l listener }

// listener takes connections of one kind. accept waits for the request of a peer; the
// function that it returns makes the connection.
type listener interface {
	accept() (func(context.Context) (net.Conn, error), error)
	addr() netip.AddrPort
	close() error
}

// tcpListener takes connections of TCP.
type tcpListener struct{ *net.TCPListener }

func (l tcpListener) addr() netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }
func (l tcpListener) close() error         { return l.Close() }

func (l tcpListener) accept() (func(context.Context) (net.Conn, error), error) {
	c, err := l.AcceptTCP()
	return func(context.Context) (net.Conn, error) { return c, nil }, err
}

// Listen opens the TCP port that peers connect to.
func Listen(addr netip.AddrPort) (*Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &Listener{tcpListener{l}}, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() netip.AddrPort { return l.l.addr() }

// Close stops listening.
func (l *Listener) Close() error { return l.l.close() }

// Serve calls handle for each connection, in a goroutine of its own, until the
// context ends, and then waits for the calls to return. handle owns the connection.
// Serve closes the listener and returns the context's cause, or the error for which
// it could not accept connections any more.
func (l *Listener) Serve(ctx context.Context, handle func(context.Context, *jsonline.Conn)) error {
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
	free := make(chan struct{}, maxConns)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		connect, err := l.l.accept()
		if err != nil {
			cancel(err) // the cause of an earlier end stays
			return context.Cause(ctx)
		}
		serving.Go(func() {
			defer func() { <-free }()
			conn, err := connect(ctx)
			if err != nil {
				return // the peer gave up
			}
			c := jsonline.New(conn)
			c.Timeout = StepTimeout
			handle(ctx, c)
		})
	}
}

// errTaken ends the conversations that did not come first.
var errTaken = errors.New("another peer came first")

// Accept has shake converse with every peer that connects, side by side, and returns
// the result of the first conversation that succeeds. The others end. refused, if
// not nil, is called for each connection that shake has refused, one call at a
// time.
func Accept[T io.Closer](ctx context.Context, l *Listener, shake func(context.Context, *jsonline.Conn) (T, error), refused func(net.Addr, error)) (T, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var taken bool
	var result T
	err := l.Serve(waiting, func(ctx context.Context, c *jsonline.Conn) {
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
