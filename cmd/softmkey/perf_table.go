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

// perfEnd is the last line of the output of --json.
type perfEnd struct {
	Command string `json:"command"`
	Cases   int    `json:"cases"`
	Failed  int    `json:"failed"`         // cases without a result
	Bad     int    `json:"bad_signatures"` // cases with a bad signature
}

// tcpPeer holds the latest figure of iperf3's TCP, for the comparison with softmkey's.
type tcpPeer struct {
	duration time.Duration
	figure   perf.Peer
	at       time.Time // when it was measured
	missing  bool      // iperf3 is not installed
}

// stale is the age at which the figure is measured again, because the speed of a machine changes
// with its load.
const stale = 15 * time.Second

// compares reports whether a case moves enough data to be compared with a stream.
func (p *tcpPeer) compares(cs *perf.Case) bool { return cs.Test == perf.Bandwidth && cs.Size >= 4096 }

// refresh measures and prints the figure if the case needs it and it is stale.
func (p *tcpPeer) refresh(ctx context.Context, cs *perf.Case, t *perfTable) {
	if p.missing || !p.compares(cs) || time.Since(p.at) < stale {
		return
	}
	figure, err := perf.Iperf(ctx, p.duration)
	switch {
	case errors.Is(err, perf.ErrNoIperf):
		p.missing = true
		fmt.Fprintln(os.Stderr, "softmkey: warning: iperf3 is not installed: there is no TCP stream to compare with")
	case err != nil:
		fmt.Fprintf(os.Stderr, "softmkey: warning: %v\n", err)
	default:
		p.figure = figure
		t.peer(&figure)
	}
	p.at = time.Now()
}

// ratio compares a result with the figure. 0 means that there is none.
func (p *tcpPeer) ratio(r *perf.Result) float64 {
	if p.figure.GBps == 0 || !p.compares(&r.Case) {
		return 0
	}
	return r.GBps / p.figure.GBps
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
		fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9s %10s %9s\n", "latency", "key", "bytes", "messages", "min us", "median us", "p99 us")
		return
	}
	fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9s %9s %6s %7s %7s\n", "bandwidth", "key", "bytes", "messages", "GB/s", "Mmsg/s", "cores", "resent", "of TCP")
}

// result prints a row, with the ratio to TCP if it is not 0.
func (t *perfTable) result(r *perf.Result, ofTCP float64) {
	t.end.Cases++
	if r.Bad != "" {
		t.end.Bad++
	}
	if t.json {
		encodeJSON(t.out, struct {
			*perf.Result
			OfTCP float64 `json:"of_iperf3_tcp,omitempty"`
		}{r, ofTCP})
		return
	}
	t.heading(r.Test)
	if r.Test == perf.Latency {
		fmt.Fprintf(t.out, "%-10s %-11s %9d %10d %9.2f %10.2f %9.2f\n", r.Op, r.Key, r.Size, r.Messages, r.Min, r.Median, r.P99)
		return
	}
	fmt.Fprintf(t.out, "%-10s %-11s %9d %10d %9.3f %9.4f %6s %7d %7s\n", r.Op, r.Key, r.Size, r.Messages, r.GBps, r.Rate/1e6, ratio(r.CPU/r.Seconds), r.Resent, ratio(ofTCP))
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

// peer prints the figure of TCP.
func (t *perfTable) peer(p *perf.Peer) {
	if t.json {
		encodeJSON(t.out, p)
		return
	}
	t.heading(perf.Bandwidth)
	fmt.Fprintf(t.out, "%-10s %-11s %9s %10s %9.3f\n", p.Name, "", "", "", p.GBps)
}
