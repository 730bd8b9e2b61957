package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/softmkey/softmkey/bench/bareudp"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/perf"
	"github.com/softmkey/softmkey/verbs"
)

// peerVar is an environment variable that makes this program the peer process. Its value
// is the TCP address for the report, and the time to poll before blocking.
const peerVar = "SOFTMKEY_BENCH_PEER"

// spin is longer than waking an idle processor takes: for latency both ends poll, as in
// perftest.
const spin = 100 * time.Microsecond

// wire is a pair of processes with a device each, on loopback: this one and a second one
// of the same program.
type wire struct {
	spin   time.Duration
	client *perf.Client
	dev    *verbs.Device
	conn   net.Conn
	cmd    *exec.Cmd
	ping   netip.AddrPort // of the bareudp.Server in the peer process
}

// start starts the peer process if it is not running.
func (w *wire) start() error {
	if w.client != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(loopbackAny))
	if err != nil {
		return err
	}
	defer l.Close()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	w.cmd = exec.Command(exe)
	w.cmd.Env = append(perf.ShareEnv(), fmt.Sprintf("%s=%v %v", peerVar, l.Addr(), w.spin))
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		return err
	}
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if w.conn, err = l.Accept(); err != nil {
		return fmt.Errorf("the other process does not report: %w", err)
	}
	if w.dev, err = openDevice(loopbackAny, w.spin); err != nil {
		return err
	}
	lines := jsonline.New(w.conn)
	if err := lines.Hear(ctx, &w.ping); err != nil {
		return err
	}
	w.client, err = perf.NewClient(ctx, lines, w.dev, perf.ClientOptions{MTU: 4096, Spin: w.spin})
	return err
}

// close ends the peer process.
func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
	}
	if w.cmd != nil {
		w.cmd.Wait()
	}
	if w.dev != nil {
		w.dev.Close()
	}
}

// serve is the main function of the peer process.
func serve(text string) error {
	addr, poll, _ := strings.Cut(text, " ")
	spin, err := time.ParseDuration(poll)
	if err != nil {
		return fmt.Errorf("%s: %w", peerVar, err)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	dev, err := openDevice(loopbackAny, spin)
	if err != nil {
		return err
	}
	defer dev.Close()
	ping, err := bareudp.Serve()
	if err != nil {
		return err
	}
	defer ping.Close()
	lines := jsonline.New(conn)
	if err := lines.Tell(context.Background(), ping.Addr()); err != nil {
		return err
	}
	server := perf.Server{Dev: dev, Spin: spin}
	return server.ServeConn(context.Background(), lines)
}

// openDevice opens a device at an address of loopback, which polls for a time before it blocks.
func openDevice(at netip.AddrPort, spin time.Duration) (*verbs.Device, error) {
	conn, err := udp.Listen(at, &udp.Options{Spin: spin})
	if err != nil {
		return nil, err
	}
	dev, err := verbs.Open(conn.LocalAddr().Addr(), &verbs.Options{Conn: conn})
	if err != nil {
		conn.Close()
	}
	return dev, err
}

// run measures a case and compares the received data with the sent data.
func (w *wire) run(c perf.Case, d time.Duration) (perf.Result, error) {
	if err := w.start(); err != nil {
		return perf.Result{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d+patience)
	defer cancel()
	c.Verify, c.QPs, c.Inline = true, 1, 64
	defer perf.Share()()
	r, err := w.client.Run(ctx, c, perf.Limit{Duration: d})
	if err == nil && r.Bad != "" {
		err = errors.New(r.Bad)
	}
	return r, err
}

// bandwidth returns the case of messages at full rate, with the number of outstanding
// messages that depth returns.
func (w *wire) bandwidth(name, op string, size int, terms keyplan.Terms, u bench.Unit) bench.Case {
	c := perf.Case{Test: perf.Bandwidth, Op: op, Key: name, Terms: terms, Size: size, Depth: depth(size)}
	return bench.Case{Name: name, Sample: func(d time.Duration) (float64, error) {
		r, err := w.run(c, d)
		if u == bench.Mops {
			return r.Rate / 1e6, err
		}
		return r.GBps, err
	}}
}

// The measured protections. The keys of both sides are equal, so that memory holds data
// and only the wire is signed, or signed and encrypted.
var (
	signed = keyplan.Terms{Wire: "t10dif"}
	rowC   = keyplan.Terms{Wire: "t10dif", Crypto: "encrypt", Order: "before", PeerCrypto: "decrypt", Unit: "520"}
)

// rows returns the rows of messages between two processes.
func (w *wire) rows() []bench.Row {
	var rows []bench.Row
	ops := []struct{ name, op string }{{"WRITE", perf.Write}, {"READ", perf.Read}, {"SEND", perf.Send}}
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, o := range ops {
			rows = append(rows, bench.Row{
				Group: "wire", Operation: o.name, Size: size, Unit: bench.GBps,
				Ours: w.bandwidth("softmkey", o.op, size, keyplan.Terms{}, bench.GBps),
				Peer: iperf(), Limit: []bench.Case{bareUDP()}, Target: 2, LimitTarget: 0.7,
			})
		}
	}
	const size = 1 << 20
	for _, o := range ops {
		for _, p := range []struct {
			name   string
			terms  keyplan.Terms
			target float64
		}{{"T10-DIF on the wire", signed, 0.85}, {"row C", rowC, 0.7}} {
			plain := w.bandwidth("plain", o.op, size, keyplan.Terms{}, bench.GBps)
			rows = append(rows, bench.Row{
				Group: "wire", Operation: o.name, Variant: p.name, Size: size, Unit: bench.GBps,
				Ours: w.bandwidth("softmkey", o.op, size, p.terms, bench.GBps), Peer: &plain, Target: p.target,
			})
		}
	}
	return append(rows, bench.Row{
		Group: "wire", Operation: "WRITE, small ones", Size: 64, Unit: bench.Mops, Bound: 1,
		Ours: w.bandwidth("softmkey", perf.Write, 64, keyplan.Terms{}, bench.Mops),
	})
}

// pingPong returns the row of a message that is sent back, next to a bare datagram. The
// result is half of the median round trip.
func (w *wire) pingPong() bench.Row {
	const size = 64
	c := perf.Case{Test: perf.Latency, Op: perf.Send, Key: "plain", Size: size, Depth: 1}
	udp := bench.Case{Name: "bare UDP", Sample: func(d time.Duration) (float64, error) {
		if err := w.start(); err != nil {
			return 0, err
		}
		defer perf.Share()()
		median, err := bareudp.Ping(size, w.ping, bareudp.For(d))
		return median.Seconds() * 1e6 / 2, err
	}}
	return bench.Row{
		Group: "wire", Operation: "SEND, ping-pong", Size: size, Unit: bench.Micros,
		Ours: bench.Case{Name: "softmkey", Sample: func(d time.Duration) (float64, error) {
			r, err := w.run(c, d)
			return r.Median, err
		}},
		Peer: &udp, Target: 1.5,
	}
}

// iperf returns the case of one TCP stream over loopback.
func iperf() *bench.Case {
	return &bench.Case{Name: "iperf3, one TCP stream", Sample: func(d time.Duration) (float64, error) {
		// iperf3 sometimes fails to reach its own server without a message.
		for range 5 {
			if p, err := perf.Iperf(context.Background(), d); err != nil || p.GBps > 0 {
				return p.GBps, err
			}
		}
		return 0, errors.New("no connection")
	}}
}

// bareUDP returns the case of datagrams alone over loopback, of the same size as a
// message's packets, with GSO and GRO.
func bareUDP() bench.Case {
	return bench.Case{Name: "bare UDP", Sample: func(d time.Duration) (float64, error) {
		return bareudp.Stream(4096, bareudp.For(d))
	}}
}
