package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
)

// Addr returns the address of a listener.
func (l *Listener) Addr() netip.AddrPort {
	if l, ok := l.l.(cmListener); ok {
		return l.l.Addr().(cm.Addr).AddrPort()
	}
	return l.l.(tcpListener).Addr().(*net.TCPAddr).AddrPort()
}

// Close stops listening.
func (l *Listener) Close() error { return l.l.close() }

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestParseAddr(t *testing.T) {
	for s, want := range map[string]string{
		"127.0.0.1": "127.0.0.1:18515", "127.0.0.1:99": "127.0.0.1:99", "::1": "[::1]:18515",
		"[2001:db8::1]:7": "[2001:db8::1]:7", "0.0.0.0:0": "0.0.0.0:0", "::ffff:192.0.2.1": "192.0.2.1:18515",
	} {
		if got, err := ParseAddr(s); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", s, got, err, want)
		}
	}
	for _, s := range []string{"", "host", "127.0.0.1:", "127.0.0.1:70000", "1.2.3", "[::1]"} {
		if got, err := ParseAddr(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

type line struct {
	Text string `json:"text"`
}

func listen(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	fatal.If(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func dial(t *testing.T, l *Listener) *jsonline.Conn {
	t.Helper()
	c, err := Dial(timeout(t), l.Addr().String(), netip.Addr{}, 0)
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// befriend reads a line and returns an error unless it is that of the expected program.
func befriend(ctx context.Context, c *jsonline.Conn) (*jsonline.Conn, error) {
	var got line
	if err := c.Hear(ctx, &got); err != nil {
		return nil, err
	}
	if got.Text != "friend" {
		return nil, errors.New("a stranger")
	}
	return c, nil
}

// acceptLater accepts a friend while the test goes on.
func acceptLater(t *testing.T, ctx context.Context, l *Listener, refused func(net.Addr, error)) (wait func() *jsonline.Conn) {
	var c *jsonline.Conn
	result := make(chan error, 1)
	go func() {
		var err error
		c, err = Accept(ctx, l, befriend, refused)
		result <- err
	}()
	return func() *jsonline.Conn {
		t.Helper()
		fatal.If(t, <-result)
		return c
	}
}

// TestAccept serves a friend at the same time as strangers. Some strangers send other
// data and some are silent, so serving one after the other would never reach the friend.
func TestAccept(t *testing.T) {
	l := listen(t)
	refused := make(chan error, 10)
	wait := acceptLater(t, timeout(t), l, func(_ net.Addr, err error) { refused <- err })
	var silent []*jsonline.Conn
	for range 3 {
		silent = append(silent, dial(t, l))
	}
	for _, text := range []string{"GET / HTTP/1.1\r\n", `{"text":"foe"}` + "\n"} {
		c := dial(t, l)
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q got an answer", text)
		}
		<-refused
	}
	c := dial(t, l)
	fatal.If(t, c.Tell(timeout(t), line{"friend"}))
	conn := wait()
	defer conn.Close()
	if err := conn.Tell(timeout(t), line{"welcome"}); err != nil {
		t.Error(err)
	}
	var got line
	if err := c.Hear(timeout(t), &got); err != nil || got.Text != "welcome" {
		t.Errorf("%q, %v", got.Text, err)
	}
	for _, c := range silent {
		if err := c.Hear(timeout(t), &got); err == nil {
			t.Error("a silent peer was answered")
		}
	}
	if len(refused) > 0 {
		t.Errorf("refused: %v", <-refused)
	}
}

// TestAcceptOnce connects many friends at once: one is accepted and the others are
// rejected.
func TestAcceptOnce(t *testing.T) {
	l := listen(t)
	const friends = 20
	for range friends {
		fatal.If(t, dial(t, l).Tell(timeout(t), line{"friend"}))
	}
	c, err := Accept(timeout(t), l, befriend, nil)
	fatal.If(t, err)
	c.Close()
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

func TestAcceptStopped(t *testing.T) {
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	l := listen(t)
	dial(t, l) // the connection stays silent
	conversing := make(chan struct{})
	go func() {
		<-conversing
		cancel(why)
	}()
	_, err := Accept(ctx, l, func(ctx context.Context, c *jsonline.Conn) (io.Closer, error) {
		close(conversing)
		return befriend(ctx, c)
	}, nil)
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	// Find a free port.
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	fatal.If(t, err)
	addr := l.Addr()
	l.Close()
	if _, err := Dial(timeout(t), addr.String(), netip.Addr{}, 0); err == nil || runtime.GOOS != "windows" && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody there: %v", err)
	}
	// Another client connects later.
	if runtime.GOOS != "windows" {
		go func() {
			time.Sleep(3 * retryAfter)
			l, err := Listen(addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			if _, connect, err := l.l.accept(); err == nil {
				c, _ := connect(t.Context()) // never fails
				c.Close()
			}
		}()
		c, err := Dial(timeout(t), addr.String(), netip.MustParseAddr("127.0.0.1"), time.Minute)
		fatal.If(t, err)
		c.Close()
	}
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Dial(ctx, addr.String(), netip.Addr{}, time.Minute); !errors.Is(err, why) {
		t.Errorf("stopped: %v", err)
	}
}

// tcpConn is a connection that claims a remote address from which tests cannot connect.
type tcpConn struct {
	net.Conn
	from string
}

func (c tcpConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1000))
}

func TestCheckDevice(t *testing.T) {
	for _, tc := range []struct {
		from, claimed, want string
		ok                  bool
	}{
		{"192.0.2.1", "192.0.2.1", "", true},
		{"::ffff:192.0.2.1", "192.0.2.1", "", true},
		{"192.0.2.1", "::ffff:192.0.2.1", "", true},
		{"2001:db8::1", "2001:db8::1", "", true},
		{"fe80::1%eth0", "fe80::1", "", true},
		{"192.0.2.1", "192.0.2.2", "", false},
		{"192.0.2.1", "127.0.0.1", "", false},
		{"127.0.0.1", "192.0.2.1", "", false},
		{"127.0.0.1", "127.0.0.2", "", true},
		{"127.0.0.1", "127.255.255.255", "", false},
		{"192.0.2.1", "192.0.2.2", "192.0.2.2", true},
		{"192.0.2.1", "192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "224.0.0.1", "224.0.0.1", false},
		{"192.0.2.1", "255.255.255.255", "255.255.255.255", false},
		{"192.0.2.1", "0.0.0.0", "0.0.0.0", false},
		{"2001:db8::1", "ff02::1", "ff02::1", false},
		{"192.0.2.1", "", "", false},
	} {
		var claimed, want netip.Addr
		if tc.claimed != "" {
			claimed = netip.MustParseAddr(tc.claimed)
		}
		if tc.want != "" {
			want = netip.MustParseAddr(tc.want)
		}
		if err := CheckDevice(tcpConn{from: tc.from}, claimed, want); (err == nil) != tc.ok {
			t.Errorf("from %s, claimed %s, wanted %s: %v", tc.from, tc.claimed, tc.want, err)
		}
	}
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if err := CheckDevice(here, netip.MustParseAddr("192.0.2.1"), netip.Addr{}); err != nil {
		t.Errorf("within the process: %v", err)
	}
}
