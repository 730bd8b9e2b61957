package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/device/devicetest"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
)

// TestHostileClient sends messages to a server that no correct client sends. The server
// must end the conversation and release its resources.
func TestHostileClient(t *testing.T) {
	ok := Case{Test: Bandwidth, Op: Write, Size: 64, Depth: 1, QPs: 1}
	with := func(f func(*Case)) *request {
		c := ok
		f(&c)
		return &request{Kind: kindCase, Case: &c}
	}
	for name, tc := range map[string]struct {
		lines []any
		want  string
	}{
		"another program":     {[]any{hello{"softmkey copy", 1}}, "this is"},
		"a later version":     {[]any{hello{program, version + 1}}, fmt.Sprintf("version %d", version+1)},
		"no JSON":             {[]any{"x"}, "does not fit"},
		"nothing to do":       {[]any{hello{program, version}, request{}}, "out of order"},
		"stop at once":        {[]any{hello{program, version}, request{Kind: kindStop}}, "out of order"},
		"no case":             {[]any{hello{program, version}, request{Kind: kindCase}}, "out of order"},
		"too large":           {[]any{hello{program, version}, with(func(c *Case) { c.Size = 1<<30 + 1 })}, "must be 1 to"},
		"too large together":  {[]any{hello{program, version}, with(func(c *Case) { c.Size, c.QPs = 1<<30, 1<<10 })}, "at most"},
		"too many":            {[]any{hello{program, version}, with(func(c *Case) { c.QPs = 1 << 30 })}, "queue pairs"},
		"too deep":            {[]any{hello{program, version}, with(func(c *Case) { c.Depth = 1 << 30 })}, "depth"},
		"too much inline":     {[]any{hello{program, version}, with(func(c *Case) { c.Inline = 1 << 30 })}, "inline"},
		"another test":        {[]any{hello{program, version}, with(func(c *Case) { c.Test = "jitter" })}, "test"},
		"another operation":   {[]any{hello{program, version}, with(func(c *Case) { c.Op = "bind" })}, "operation"},
		"a large atomic":      {[]any{hello{program, version}, with(func(c *Case) { c.Op = FetchAdd })}, "atomics have 8"},
		"keys that cannot be": {[]any{hello{program, version}, with(func(c *Case) { c.Terms = keyplan.Terms{Wire: "md5"} })}, "--wire"},
		"no endpoint": {[]any{hello{program, version}, request{Kind: kindCase, Case: &ok}, map[string]string{"endpoint": "x"}},
			"does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			dev, _ := devicetest.Pair(t)
			here, there := net.Pipe()
			served := make(chan error, 1)
			go func() {
				defer there.Close()
				served <- (&Server{Dev: dev}).ServeConn(ctx, jsonline.New(there))
			}()
			go func() { // reads and ignores the answers
				b := make([]byte, 1024)
				for {
					if _, err := here.Read(b); err != nil {
						return
					}
				}
			}()
			conn := jsonline.New(here)
			for _, v := range tc.lines {
				_ = conn.Tell(ctx, v) // the server may have disconnected
			}
			if err := <-served; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			here.Close()
		})
	}
}

// TestSideBySide serves a client at the same time as strangers: silent ones, one that
// speaks another protocol, and one that connects and leaves. The server ends when the
// client has measured and disconnects.
func TestSideBySide(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dev, peer := devicetest.Pair(t)
	l, err := rendezvous.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	refused := make(chan error, 10)
	// The devices of this test have addresses in another network.
	server := Server{Dev: peer, PeerDevice: dev.Addr()}
	go func() { served <- server.Serve(ctx, l, func(_ net.Addr, err error) { refused <- err }) }()
	dial := func() *jsonline.Conn {
		c, err := rendezvous.Dial(ctx, l.Addr().String(), netip.Addr{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	if _, err := dial().Write([]byte("GET / HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-refused; !errors.Is(err, jsonline.ErrStranger) {
		t.Error(err)
	}
	leaving := dial()
	if _, err := NewClient(ctx, leaving, dev, ClientOptions{}); err != nil {
		t.Error(err)
	}
	leaving.Close()

	cs := Case{Test: Bandwidth, Op: Write, Key: "plain", Size: 64, Depth: 8, QPs: 1}
	// A server that claims another address is refused.
	doubting := dial()
	c, err := NewClient(ctx, doubting, dev, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(ctx, cs, Limit{Messages: 1}); err == nil || !strings.Contains(err.Error(), "--peer-device") {
		t.Errorf("a server at another address: %v", err)
	}
	doubting.Close()

	conn := dial()
	if c, err = NewClient(ctx, conn, dev, ClientOptions{PeerDevice: peer.Addr()}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(ctx, cs, Limit{Messages: 100}); err != nil {
		t.Error(err)
	}
	conn.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestTotalMemoryLimit checks the limit on the total that all clients request.
func TestTotalMemoryLimit(t *testing.T) {
	var s Server
	c := Case{Size: 1 << 30, QPs: 1}
	if err := errors.Join(s.reserve(&c), s.reserve(&c)); err != nil {
		t.Error(err)
	}
	if s.reserve(&c) == nil {
		t.Error("three of 1 GiB")
	}
	s.release(&c)
	if err := s.reserve(&c); err != nil {
		t.Error(err)
	}
}
