// Package tcpport helps benchmarks and tests that start servers of other projects: it finds a free TCP port, and waits
// until a server listens on one.
package tcpport

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Free returns a TCP port that no program of this machine uses at the moment.
func Free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// Await returns when a program of this network namespace listens on a TCP port. It reads the
// system's list of sockets instead of connecting, because a server may take the first
// connection to be its client's.
func Await(ctx context.Context, port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("TCP port %q: %w", port, err)
	}
	listening := fmt.Appendf(nil, ":%04X 00000000:0000 0A ", n)
	for {
		for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			list, _ := os.ReadFile(name) // a system without IPv6 has no tcp6
			if bytes.Contains(bytes.ReplaceAll(list, []byte(strings.Repeat("0", 32)), []byte("00000000")), listening) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing listens on TCP port %s: %w", port, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
