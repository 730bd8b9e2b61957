package perf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/internal/tool/udpbench"
)

// Peer is the figure of another program or protocol on the same machine.
type Peer struct {
	Name   string  `json:"peer"`
	Bytes  int     `json:"bytes,omitempty"`         // in each datagram, for UDP
	GBps   float64 `json:"gb_per_second,omitempty"` // a stream
	Min    float64 `json:"min_us,omitempty"`        // a ping-pong, half of a round trip, in microseconds
	Median float64 `json:"median_us,omitempty"`
	P99    float64 `json:"p99_us,omitempty"`
}

// UDPStream measures a bare stream of UDP over loopback with GSO and GRO, in segments of
// data bytes, within this process.
func UDPStream(data int, d time.Duration) (Peer, error) {
	defer whole()()
	r, err := udpbench.Stream(udpbench.Config{Variant: udpbench.Raw, Data: data}, udpbench.For(d))
	return Peer{Name: "udp-gso", Bytes: data, GBps: r.GBps()}, err
}

// UDPPing measures a ping-pong of bare datagrams of data bytes with the server's process. It
// uses blocking system calls if raw is set, and otherwise the package that devices use.
func (c *Client) UDPPing(ctx context.Context, data int, raw bool, d time.Duration) (Peer, error) {
	a, err := c.ask(ctx, request{Kind: kindPing, Raw: raw, Spin: int64(c.o.Spin)})
	if err != nil {
		return Peer{}, err
	}
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return Peer{}, fmt.Errorf("the server's address: %w", err)
	}
	if err := rendezvous.CheckDevice(c.conn, to.Addr(), c.o.PeerDevice); err != nil {
		return Peer{}, err
	}
	config := pingConfig(raw, c.dev.Addr(), c.o.Spin)
	config.Data = data
	r, err := udpbench.Ping(config, to, udpbench.For(d))
	_, stopErr := c.ask(ctx, request{Kind: kindStop})
	p := Peer{Name: "udp-batched", Bytes: data}
	if raw {
		p.Name = "udp-raw"
	}
	us := func(q float64) float64 { return r.RTTQuantile(q).Seconds() * 1e6 / 2 }
	p.Min, p.Median, p.P99 = us(0), us(0.5), us(0.99)
	return p, errors.Join(err, stopErr)
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
