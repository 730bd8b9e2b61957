package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/internal/tool/tcpport"
)

// queueRows returns the rows of the program bench/queue, which measures block requests between a
// client and a storage target. Both ends are in one softmkey run, or each in its own. The peer is the
// same program over TCP.
func (r *runs) queueRows() []bench.Row {
	type shape struct {
		size, depth int
		unit        bench.Unit
		bounds      [2]float64 // targets in one run and in two; 0: the target is a ratio to the peer
	}
	var rows []bench.Row
	for _, s := range []shape{
		{4096, 1, bench.Micros, [2]float64{60, 120}},
		{4096, 32, bench.Mops, [2]float64{0.1, 0.05}},
		{128 << 10, 16, bench.GBps, [2]float64{}},
	} {
		for i, where := range []string{"one run", "two runs"} {
			peer := r.queue("TCP", s.size, s.depth, s.unit, 0)
			row := bench.Row{
				Group: "run", Operation: fmt.Sprintf("queue of %d reads", s.depth), Variant: where, Size: s.size, Unit: s.unit,
				Ours: r.queue("softmkey", s.size, s.depth, s.unit, i+1), Peer: &peer, Bound: s.bounds[i],
			}
			if row.Bound == 0 {
				row.Target = 1 / float64(i+1)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// queue returns the case of bench/queue in one or two runs, or over TCP without a run if runs is 0.
func (r *runs) queue(name string, size, depth int, u bench.Unit, runs int) bench.Case {
	return sampled(name, func(d time.Duration) float64 {
		r.compile("queue")
		ctx, cancel := context.WithTimeout(context.Background(), d+4*patience)
		defer cancel()
		args := []string{"-q", strconv.Itoa(depth), "-s", strconv.Itoa(size), "-t", fmt.Sprintf("%.3f", d.Seconds())}
		out, err := r.startQueue(ctx, runs, args)
		if err != nil {
			check(fmt.Errorf("queue: %w: %s", err, out))
		}
		var rate, mean float64
		if _, err := fmt.Sscanf(string(out), "%f /s mean %f us", &rate, &mean); err != nil {
			check(fmt.Errorf("queue: no result in %q", out))
		}
		switch u {
		case bench.Micros:
			return mean
		case bench.GBps:
			return rate * float64(size) / 1e9
		}
		return rate / 1e6
	})
}

// startQueue runs both ends and returns the output.
func (r *runs) startQueue(ctx context.Context, runs int, args []string) ([]byte, error) {
	queue, softmkey := r.path("queue"), r.path("softmkey")
	switch runs {
	case 0:
		return exec.CommandContext(ctx, queue, append(append([]string{"-T"}, args...), "both")...).CombinedOutput()
	case 1:
		return exec.CommandContext(ctx, softmkey, append(append([]string{"run", "--", queue}, args...), "both")...).CombinedOutput()
	}
	port := must(tcpport.Free())
	server := exec.CommandContext(ctx, softmkey, "run", "--", queue, "-l", port)
	check(server.Start())
	out, err := exec.CommandContext(ctx, softmkey, append(append([]string{"run", "--", queue}, args...), "127.0.0.1", port)...).CombinedOutput()
	if err != nil {
		server.Process.Kill()
	}
	return out, errors.Join(err, server.Wait())
}
