package webserver

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
)

// client is a connection. answering is 1 while the handler answers a request, and 0 while the server waits for
// a request or for the rest of one.
type client struct {
	net.Conn
	answering atomic.Int32
}

// clients are the open connections, the oldest first, and the number of them that may be open.
type clients struct {
	most int
	mu   sync.Mutex
	all  []*client
}

// add adds a connection. If there are too many, it closes the oldest one that is not answering a request. So
// clients that connect, and send nothing or half a request, do not block others.
func (c *clients) add(x *client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most {
		if i := slices.IndexFunc(c.all, func(old *client) bool { return old.answering.Load() == 0 }); i >= 0 {
			c.all[i].Close()
			c.all = slices.Delete(c.all, i, i+1)
		}
	}
	c.all = append(c.all, x)
}

// changed is http.Server.ConnState.
func (c *clients) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(x *client) bool { return x == conn })
}

// limitListener adds the connections that it accepts to clients.
type limitListener struct {
	net.Listener
	clients *clients
}

// Accept implements net.Listener.
func (l *limitListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	x := &client{Conn: conn}
	l.clients.add(x)
	return x, nil
}

// clientKey is the key of a request's client in its context.
type clientKey struct{}

// withClient is http.Server.ConnContext.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, clientKey{}, conn)
}

// answering marks the client of a request while h answers.
func answering(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if x, ok := r.Context().Value(clientKey{}).(*client); ok {
			x.answering.Add(1)
			defer x.answering.Add(-1)
		}
		h.ServeHTTP(w, r)
	})
}
