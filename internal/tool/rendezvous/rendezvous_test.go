package rendezvous

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

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

// join returns both ends of a connection on which the first line was swapped.
func join(t *testing.T, greet func(context.Context, *Conn) error) (client, server *Conn) {
	t.Helper()
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted := make(chan *Conn, 1)
	go func() {
		c, err := l.Accept(timeout(t), greet)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if client, err = Dial(timeout(t), l.Addr().String(), 0); err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

func noGreeting(context.Context, *Conn) error { return nil }

func TestLines(t *testing.T) {
	a, b := join(t, noGreeting)
	done := make(chan error, 1)
	go func() {
		var got line
		err := b.Swap(timeout(t), line{"from b"}, &got)
		if err == nil && got.Text != "from a" {
			err = errors.New(got.Text)
		}
		done <- err
	}()
	var got line
	if err := a.Swap(timeout(t), line{"from a"}, &got); err != nil || got.Text != "from b" {
		t.Errorf("%q, %v", got.Text, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if a.Local() != netip.MustParseAddr("127.0.0.1") {
		t.Error(a.Local())
	}

	// What does not fit.
	for text, want := range map[string]string{
		"nonsense\n":                   "does not fit",
		`{"text":1}` + "\n":            "does not fit",
		`{"other":"x"}` + "\n":         `unknown field "other"`,
		strings.Repeat("x", maxLine+1): "a line of more than",
	} {
		a, b := join(t, noGreeting)
		if _, err := b.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := a.Hear(timeout(t), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	b.Close()
	if err := a.Hear(timeout(t), &got); !errors.Is(err, ErrHungUp) {
		t.Errorf("closed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("stopped")
	cancel(why)
	a, _ = join(t, noGreeting)
	if err := a.Hear(ctx, &got); !errors.Is(err, why) {
		t.Errorf("stopped: %v", err)
	}
}

func TestAgree(t *testing.T) {
	mine, theirs := errors.New("mine"), errors.New("their \"reason\" \x1b[2J")
	for _, tc := range []struct{ a, b, wantA, wantB string }{
		{"", "", "", ""},
		{"mine", "", "mine", "the other side: mine"},
		{"", "theirs", `the other side: their "reason" \x1b[2J`, theirs.Error()},
		{"mine", "theirs", "mine", theirs.Error()},
	} {
		a, b := join(t, noGreeting)
		pick := func(s string) error { return map[string]error{"mine": mine, "theirs": theirs}[s] }
		done := make(chan error, 1)
		go func() { done <- b.Agree(timeout(t), pick(tc.b)) }()
		text := func(err error) string {
			if err == nil {
				return ""
			}
			return err.Error()
		}
		if got := text(a.Agree(timeout(t), pick(tc.a))); got != tc.wantA {
			t.Errorf("%q, want %q", got, tc.wantA)
		}
		if got := text(<-done); got != tc.wantB {
			t.Errorf("%q, want %q", got, tc.wantB)
		}
	}
}

// TestAccept sends away whoever says something else.
func TestAccept(t *testing.T) {
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(timeout(t), func(ctx context.Context, c *Conn) error {
			var got line
			if err := c.Hear(ctx, &got); err != nil {
				return err
			}
			if got.Text != "friend" {
				return errors.New("a stranger")
			}
			return nil
		})
		accepted <- err
	}()
	for _, text := range []string{"GET / HTTP/1.1\r\n", `{"text":"foe"}` + "\n"} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("%q got an answer", text)
		}
		c.Close()
	}
	c, err := Dial(timeout(t), l.Addr().String(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Tell(timeout(t), line{"friend"}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Error(err)
	}
}

func TestAcceptStopped(t *testing.T) {
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := l.Accept(ctx, noGreeting); !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestDial(t *testing.T) {
	// A port that was free a moment ago.
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr()
	l.Close()
	if _, err := Dial(timeout(t), addr.String(), 0); err == nil || runtime.GOOS != "windows" && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody there: %v", err)
	}
	// Somebody comes later.
	if runtime.GOOS != "windows" {
		go func() {
			time.Sleep(3 * retryAfter)
			l, err := Listen(addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			if c, err := l.tcp.Accept(); err == nil {
				c.Close()
			}
		}()
		c, err := Dial(timeout(t), addr.String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	why := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Dial(ctx, addr.String(), time.Minute); !errors.Is(err, why) {
		t.Errorf("stopped: %v", err)
	}
}

func TestGone(t *testing.T) {
	a, b := join(t, noGreeting)
	gone := a.Gone()
	select {
	case <-gone:
		t.Error("gone too early")
	default:
	}
	b.Close()
	<-gone
}
