package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/internal/tool/tcpport"
	"github.com/softmkey/softmkey/rdma"
)

// runs measures programs under "softmkey run", such as Debian's perftest.
type runs struct {
	folder
	compiled []string // C programs that are built
}

// rows returns the rows of perftest. Their peer is the library, between two devices of this process.
func (r *runs) rows() []bench.Row {
	if _, err := exec.LookPath("ib_write_bw"); err != nil {
		fmt.Fprintln(os.Stderr, "bench: no rows of programs under softmkey run: perftest is not installed")
		return nil
	}
	ops := []struct {
		program string
		op      rdma.Opcode
	}{{"ib_write_bw", rdma.OpRDMAWrite}, {"ib_read_bw", rdma.OpRDMARead}, {"ib_send_bw", rdma.OpSend}}
	var rows []bench.Row
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, o := range ops {
			var f *flow
			peer := rate("package verbs", bench.GBps, &f)
			rows = append(rows, bench.Row{
				Group: "run", Operation: o.program, Size: size, Unit: bench.GBps,
				Ours: r.perftest(o.program, size, bench.GBps), Peer: &peer, Target: 0.5,
				Check: func() error { return attempt(func() { f = over(o.op, size, nil) }) },
				Done:  func() { f.close() },
			})
		}
	}
	for _, program := range []string{"ib_write_bw", "ib_send_bw"} {
		rows = append(rows, bench.Row{
			Group: "run", Operation: program, Size: 64, Unit: bench.Mops, Bound: 0.3, Ours: r.perftest(program, 64, bench.Mops),
		})
	}
	for _, program := range []string{"ib_write_lat", "ib_send_lat"} {
		rows = append(rows, bench.Row{
			Group: "run", Operation: program, Size: 64, Unit: bench.Micros, Bound: 100, Ours: r.perftest(program, 64, bench.Micros),
		})
	}
	for i, where := range []string{"one run", "two runs"} {
		rows = append(rows, bench.Row{
			Group: "run", Operation: "system calls of a round trip", Variant: where, Unit: bench.Calls, Bound: []float64{9, 14}[i], Ours: r.calls(i + 1),
		})
	}
	return append(rows, r.queueRows()...)
}

// Expected figures, from which the number of messages of a round is computed.
const (
	expectedGBps   = 1
	expectedMops   = 0.2
	expectedMicros = 100
	fewest         = 200
)

// perftest returns the case of a program of perftest.
func (r *runs) perftest(program string, size int, u bench.Unit) bench.Case {
	return sampled(program, func(d time.Duration) float64 {
		messages := d.Seconds() * expectedMops * 1e6
		switch u {
		case bench.GBps:
			messages = d.Seconds() * expectedGBps * 1e9 / float64(size)
		case bench.Micros:
			messages = d.Seconds() * 1e6 / expectedMicros
		}
		out := r.pair(d+4*patience, program, "-F", "-x", "3", "-s", strconv.Itoa(size), "-n", strconv.Itoa(max(fewest, int(messages))))
		figure := must(figures(out))[4] // t_typical, which is the median, or Mpps
		if u == bench.GBps {
			return figure * float64(size) / 1e3
		}
		return figure
	})
}

// calls returns the case that counts the system calls of both ends and their devices, in one run or in two, for a round
// trip of ib_write_lat: the difference between a long and a short measurement.
func (r *runs) calls(runs int) bench.Case {
	return sampled("ib_write_lat", func(d time.Duration) float64 {
		const short, long = 2000, 22000
		r.build()
		var total [2]float64
		for i, n := range []int{short, long} {
			ctx, cancel := context.WithTimeout(context.Background(), d+4*patience)
			defer cancel()
			port := must(tcpport.Free())
			run, end := r.path("softmkey")+" run -- ", fmt.Sprintf("ib_write_lat -F -x 3 -n %d -p %s", n, port)
			script := fmt.Sprintf("%[1]s%[2]s >&2 & sleep 1; %[1]s%[2]s 127.0.0.1 >&2 && wait $!", run, end)
			if runs == 1 {
				script = fmt.Sprintf("%[1]ssh -c '%[2]s & sleep 1; %[2]s 127.0.0.1 && wait $!' >&2", run, end)
			}
			out, err := exec.CommandContext(ctx, "perf", "stat", "-x", ",", "--log-fd", "1", "-e", "raw_syscalls:sys_enter", "sh", "-c", script).Output()
			if err != nil {
				check(fmt.Errorf("perf stat -e raw_syscalls:sys_enter: %w", err))
			}
			if _, err := fmt.Sscanf(string(out), "%f,", &total[i]); err != nil {
				check(fmt.Errorf("perf counts no system calls: %q", out))
			}
		}
		return (total[1] - total[0]) / (long - short)
	})
}

// figures returns the numbers of a program's result: the line after the heading that
// begins with "#bytes". The fifth one is the rate in 10^6 messages a second, or the median
// latency in microseconds.
func figures(out []byte) ([]float64, error) {
	_, rest, _ := bytes.Cut(out, []byte("#bytes"))
	_, rest, _ = bytes.Cut(rest, []byte("\n"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	var f []float64
	for _, text := range strings.Fields(string(line)) {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			break
		}
		f = append(f, v)
	}
	if len(f) < 5 {
		return nil, fmt.Errorf("no result in %q", out)
	}
	return f, nil
}

// pair runs a program as a server and as its client, and returns the client's output.
func (r *runs) pair(limit time.Duration, command ...string) []byte {
	r.build()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	port := must(tcpport.Free())
	args := append([]string{"run", "--"}, append(command, "-p", port)...)
	server := exec.CommandContext(ctx, r.path("softmkey"), args...)
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	check(server.Start())
	if err := tcpport.Await(ctx, port); err != nil {
		cancel()
		server.Wait()
		check(fmt.Errorf("%s does not listen: %w: %s", command[0], err, said.Bytes()))
	}
	out, err := exec.CommandContext(ctx, r.path("softmkey"), append(args, "127.0.0.1")...).CombinedOutput()
	if err != nil {
		cancel()
	}
	check(errors.Join(err, server.Wait()))
	return out
}

// compile builds softmkey and the C program NAME/NAME.c on the first call.
func (r *runs) compile(name string) {
	r.build()
	if !slices.Contains(r.compiled, name) {
		program(exec.Command("cc", "-O2", "-o", r.path(name), filepath.Join(name, name+".c"), "-libverbs"))
		r.compiled = append(r.compiled, name)
	}
}
