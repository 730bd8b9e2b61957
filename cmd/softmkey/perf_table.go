package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/softmkey/softmkey/internal/tool/perf"
)

// ratios are the ratios of a result to bare UDP and to TCP on the same machine; 0: not measured.
type ratios struct {
	OfUDP float64 `json:"of_bare_udp,omitempty"`
	OfTCP float64 `json:"of_iperf3_tcp,omitempty"`
}

// perfEnd is the last line of the output of --json.
type perfEnd struct {
	Command string `json:"command"`
	Cases   int    `json:"cases"`
	Failed  int    `json:"failed"`         // cases without a result
	Bad     int    `json:"bad_signatures"` // cases with a bad signature
}

// peerFigures are the latest figures of bare UDP and of TCP, for the comparison with softmkey's.
type peerFigures struct {
	client   *perf.Client
	duration time.Duration
	noIperf  bool

	stream, tcp perf.Peer
	streamed    time.Time
	pings       map[int]pingFigure // by size in bytes
}

// pingFigure is the figure of a ping-pong, and when it was measured.
type pingFigure struct {
	perf.Peer
	at time.Time
}

// stale is the age at which a figure is measured again, because the speed of a machine changes
// with its load.
const stale = 15 * time.Second

// maxPing is the largest message in bytes that is compared with a single datagram.
const maxPing = 4096

// refresh measures the figures that a case is compared with if they are stale, and returns the
// new ones.
func (p *peerFigures) refresh(ctx context.Context, cs *perf.Case) (fresh []perf.Peer, err error) {
	if cs.Test == perf.Latency {
		if time.Since(p.pings[cs.Size].at) < stale || cs.Size > maxPing {
			return nil, nil
		}
		for _, raw := range []bool{true, false} {
			ping, err := p.client.UDPPing(ctx, cs.Size, raw, p.duration)
			if err != nil {
				return nil, err
			}
			fresh = append(fresh, ping)
			p.pings[cs.Size] = pingFigure{ping, time.Now()}
		}
		return fresh, nil
	}
	if time.Since(p.streamed) < stale || cs.Size < 4096 {
		return nil, nil
	}
	if p.stream, err = perf.UDPStream(p.client.MTU(), p.duration); err != nil {
		return nil, err
	}
	fresh = append(fresh, p.stream)
	if !p.noIperf {
		p.tcp, err = perf.Iperf(ctx, p.duration)
		switch {
		case errors.Is(err, perf.ErrNoIperf):
			p.noIperf = true
			fmt.Fprintln(os.Stderr, "softmkey: warning: iperf3 is not installed: there is no TCP stream to compare with")
		case err != nil:
			fmt.Fprintf(os.Stderr, "softmkey: warning: %v\n", err)
		default:
			fresh = append(fresh, p.tcp)
		}
	}
	p.streamed = time.Now()
	return fresh, nil
}

// ratios compares a result with the figures.
func (p *peerFigures) ratios(r *perf.Result) (x ratios) {
	if r.Test == perf.Latency {
		if ping := p.pings[r.Size]; ping.Median > 0 {
			x.OfUDP = r.Median / ping.Median
			if r.Whole {
				x.OfUDP /= 2
			}
		}
		return x
	}
	if r.Size >= 4096 && p.stream.GBps > 0 {
		x.OfUDP = r.GBps / p.stream.GBps
	}
	if r.Size >= 4096 && p.tcp.GBps > 0 {
		x.OfTCP = r.GBps / p.tcp.GBps
	}
	return x
}

// perfTable prints results, for people or as JSON.
type perfTable struct {
	out  io.Writer
	json bool
	end  perfEnd
	test string // test whose heading was printed last
}

func (t *perfTable) heading(test string) {
	if t.json || t.test == test {
		return
	}
	if t.test != "" {
		fmt.Fprintln(t.out)
	}
	t.test = test
	if test == perf.Latency {
		fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9s %10s %9s %8s\n", "latency", "key", "bytes", "messages", "min us", "median us", "p99 us", "x UDP")
		return
	}
	fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9s %9s %6s %7s %7s %7s\n", "bandwidth", "key", "bytes", "messages", "GB/s", "Mmsg/s", "cores", "resent", "of UDP", "of TCP")
}

// result prints a row.
func (t *perfTable) result(r *perf.Result, x ratios) {
	t.end.Cases++
	if r.Bad != "" {
		t.end.Bad++
	}
	if t.json {
		encodeJSON(t.out, struct {
			*perf.Result
			ratios
		}{r, x})
		return
	}
	t.heading(r.Test)
	if r.Test == perf.Latency {
		fmt.Fprintf(t.out, "%-10s %-11s %9d %10d %9.2f %10.2f %9.2f %8s\n", r.Op, r.Key, r.Size, r.Messages, r.Min, r.Median, r.P99, ratio(x.OfUDP))
		return
	}
	fmt.Fprintf(t.out, "%-10s %-11s %9d %10d %9.3f %9.4f %6s %7d %7s %7s\n", r.Op, r.Key, r.Size, r.Messages, r.GBps, r.Rate/1e6, ratio(r.CPU/r.Seconds), r.Resent, ratio(x.OfUDP), ratio(x.OfTCP))
}

func ratio(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", x)
}

// failed prints a case that has no result.
func (t *perfTable) failed(cs *perf.Case, err error) {
	t.end.Cases++
	t.end.Failed++
	if t.json {
		encodeJSON(t.out, struct {
			*perf.Case
			Error string `json:"error"`
		}{cs, err.Error()})
		return
	}
	t.heading(cs.Test)
	fmt.Fprintf(t.out, "%-10s %-11s %9d  %v\n", cs.Op, cs.Key, cs.Size, err)
}

// peers prints the figures of bare UDP and of TCP.
func (t *perfTable) peers(list []perf.Peer) {
	for _, p := range list {
		switch {
		case t.json:
			encodeJSON(t.out, p)
		case p.GBps > 0:
			t.heading(perf.Bandwidth)
			bytes := ""
			if p.Bytes > 0 {
				bytes = fmt.Sprint(p.Bytes)
			}
			fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9.3f\n", p.Name, "", bytes, "", p.GBps)
		default:
			t.heading(perf.Latency)
			fmt.Fprintf(t.out, "%-11s %-10s %9d %10s %9.2f %10.2f %9.2f\n", p.Name, "", p.Bytes, "", p.Min, p.Median, p.P99)
		}
	}
}
