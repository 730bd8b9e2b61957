package tcpport

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
)

// TestAwait waits for a server on each address family, and for none.
func TestAwait(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system has no /proc/net/tcp")
	}
	for _, addr := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("%s: %v", addr, err) // a system without IPv6
			continue
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		if err := Await(t.Context(), port); err != nil {
			t.Error(err)
		}
		l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Await(ctx, port); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, closed: %v", addr, err)
		}
	}
	if err := Await(t.Context(), "70000"); err == nil {
		t.Error("port 70000 was accepted")
	}
}
