package rendezvous

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// Port is the TCP port that is used if none is given: that of perftest and of
// the examples of libibverbs.
const Port = 18515

// maxLine bounds what is read from a peer that has not proved anything.
const maxLine = 8192

// patience is how long a peer may take to say the first line.
const patience = 10 * time.Second

// Conn is a connection on which two programs agree. What is read from it is
// buffered, so all reading must go through it.
type Conn struct {
	net.Conn
	in *bufio.Reader
}

// New returns a Conn on any connection: one inside the process, for example.
func New(c net.Conn) *Conn { return &Conn{c, bufio.NewReader(c)} }

// Read reads what the peer sent.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// ParseAddr reads ADDR or ADDR:PORT, with brackets around an IPv6 address that a
// port follows. The port is Port if there is none.
func ParseAddr(s string) (netip.AddrPort, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a.Unmap(), Port), nil
	}
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		return a, fmt.Errorf("%q: must be an address of this host, with or without a port, such as 127.0.0.1 or 192.0.2.1:%d", s, Port)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// Dial connects to HOST or HOST:PORT, where HOST is a name or an address. While
// nobody listens there it tries again, for as long as patience.
func Dial(ctx context.Context, host string, patience time.Duration) (*Conn, error) {
	target := host
	if a, err := ParseAddr(host); err == nil {
		target = a.String()
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		target = net.JoinHostPort(host, strconv.Itoa(Port))
	}
	var d net.Dialer
	for end := time.Now().Add(patience); ; {
		c, err := d.DialContext(ctx, "tcp", target)
		switch {
		case err == nil:
			return New(c), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end):
			return nil, err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// retryAfter is how long Dial waits before it tries again.
const retryAfter = 50 * time.Millisecond

// Listener waits for a peer.
type Listener struct{ tcp *net.TCPListener }

// Listen opens the port that the peer connects to.
func Listen(addr netip.AddrPort) (*Listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &Listener{l}, nil
}

// Addr returns the address that is listened on.
func (l *Listener) Addr() netip.AddrPort { return l.tcp.Addr().(*net.TCPAddr).AddrPort() }

// Close stops listening.
func (l *Listener) Close() error { return l.tcp.Close() }

// Accept waits for a peer that greet is content with. Whoever connects and says
// something else than it should, or nothing, is sent away.
func (l *Listener) Accept(ctx context.Context, greet func(context.Context, *Conn) error) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { l.tcp.Close() })
	defer stop()
	for {
		tcp, err := l.tcp.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
		c := New(tcp)
		first, cancel := context.WithTimeout(ctx, patience)
		err = greet(first, c)
		cancel()
		if err == nil {
			_ = c.SetDeadline(time.Time{})
			return c, nil
		}
		c.Close()
	}
}

// Swap sends mine to the peer as a line of JSON and reads the peer's line into
// theirs, which must be a pointer, when both sides do so at once.
func (c *Conn) Swap(ctx context.Context, mine, theirs any) error {
	if err := c.Tell(ctx, mine); err != nil {
		return err
	}
	return c.Hear(ctx, theirs)
}

// Tell sends v to the peer as a line of JSON.
func (c *Conn) Tell(ctx context.Context, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.interruptible(ctx, func() error {
		_, err := c.Write(append(line, '\n'))
		return err
	})
}

// Hear reads a line of JSON of the peer into v, which must be a pointer. Fields
// that v does not have are an error.
func (c *Conn) Hear(ctx context.Context, v any) error {
	return c.interruptible(ctx, func() error {
		line, err := c.readLine()
		if err != nil {
			return err
		}
		return unmarshal(line, v)
	})
}

// interruptible calls f, which uses the connection, and ends it when the context
// ends.
func (c *Conn) interruptible(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := f()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ErrHungUp is returned when the peer has closed the connection.
var ErrHungUp = errors.New("the other side hung up")

// readLine reads to the end of a line.
func (c *Conn) readLine() ([]byte, error) {
	var line []byte
	for len(line) < maxLine {
		b, err := c.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil, ErrHungUp
		case err != nil:
			return nil, err
		case b == '\n':
			return line, nil
		}
		line = append(line, b)
	}
	return nil, fmt.Errorf("the other side sent a line of more than %d bytes", maxLine)
}

// Agree tells the peer whether this side is content, and returns what either side
// has to object: this side's error as it is.
func (c *Conn) Agree(ctx context.Context, err error) error {
	type verdict struct {
		Error string `json:"error,omitempty"`
	}
	var mine, theirs verdict
	if err != nil {
		mine.Error = err.Error()
	}
	if swapErr := c.Swap(ctx, mine, &theirs); err == nil && swapErr != nil {
		return swapErr
	}
	if err == nil && theirs.Error != "" {
		err = fmt.Errorf("the other side: %s", Clean(theirs.Error))
	}
	return err
}

// Gone returns a channel that is closed when the peer closes the connection, or
// the connection breaks. Nothing can be read any more after it was called.
func (c *Conn) Gone() <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(gone)
	}()
	return gone
}
