package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Peer is the figure of another program or protocol on the same machine.
type Peer struct {
	Name string  `json:"peer"`
	GBps float64 `json:"gb_per_second"`
}

// ErrNoIperf is returned where iperf3 is not installed.
var ErrNoIperf = errors.New("iperf3 is not installed")

// Iperf measures a TCP stream of iperf3 over loopback.
func Iperf(ctx context.Context, d time.Duration) (Peer, error) {
	path, err := exec.LookPath("iperf3")
	if err != nil {
		return Peer{}, ErrNoIperf
	}
	port, err := FreePort()
	if err != nil {
		return Peer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+20*time.Second)
	defer cancel()
	server := exec.CommandContext(ctx, path, "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		return Peer{}, err
	}
	defer func() { cancel(); _ = server.Wait() }()
	seconds := strconv.Itoa(max(1, int(d.Round(time.Second).Seconds())))
	// The client is started again until the server listens.
	for try := 0; ; try++ {
		p, err := iperfClient(ctx, path, port, seconds)
		if err == nil || try == iperfTries || ctx.Err() != nil {
			return p, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

const iperfTries = 20

func iperfClient(ctx context.Context, path, port, seconds string) (Peer, error) {
	out, err := exec.CommandContext(ctx, path, "-c", "127.0.0.1", "-p", port, "-t", seconds, "-J").Output()
	if err != nil {
		return Peer{}, fmt.Errorf("iperf3: %w", err)
	}
	var report struct {
		Error string `json:"error"`
		End   struct {
			Received struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	switch err := json.Unmarshal(out, &report); {
	case err != nil:
		return Peer{}, fmt.Errorf("iperf3: %w", err)
	case report.End.Received.BitsPerSecond == 0:
		return Peer{}, fmt.Errorf("iperf3: no figure: %.200s", report.Error)
	}
	return Peer{Name: "iperf3-tcp", GBps: report.End.Received.BitsPerSecond / 8e9}, nil
}

// FreePort returns a TCP port that no program of this machine uses at the moment.
func FreePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// AwaitListener returns when a program of this network namespace listens on a TCP port. It
// reads the system's list of sockets instead of connecting, because a server may take the
// first connection to be its client's.
func AwaitListener(ctx context.Context, port string) error {
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
