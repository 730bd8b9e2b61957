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
type Listener struct{ tcp *net.TCPListener }

// Listen opens the port that peers connect to.
func Listen(addr netip.AddrPort) (*Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &Listener{l}, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() netip.AddrPort { return l.tcp.Addr().(*net.TCPAddr).AddrPort() }

// Close stops listening.
func (l *Listener) Close() error { return l.tcp.Close() }

// Serve calls handle for each connection, in a goroutine of its own, until the
// context ends, and then waits for the calls to return. handle owns the connection.
// Serve closes the listener and returns the context's cause, or the error for which
// it could not accept connections any more.
func (l *Listener) Serve(ctx context.Context, handle func(context.Context, *jsonline.Conn)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { l.tcp.Close() })
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	free := make(chan struct{}, maxConns)
	for {
		select {
		case free <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		tcp, err := l.tcp.AcceptTCP()
		if err != nil {
			cancel(err) // the cause of an earlier end stays
			return context.Cause(ctx)
		}
		c := jsonline.New(tcp)
		c.Timeout = StepTimeout
		serving.Go(func() {
			handle(ctx, c)
			<-free
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
