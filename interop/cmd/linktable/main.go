// Linktable prints how fast softmkey copies over bad networks, with iperf3's TCP beside it
// on the same emulated link, once with each of the congestion controls BBR and CUBIC. Where a
// queue is shared, it prints what BBR gets beside another stream, too. It needs
// root, iperf3, the kernel's BBR, and softmkey in the PATH or named by --softmkey. From the
// project's root: make links.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/interop/link"
)

// row is a row of the table.
type row struct {
	name   string
	mtu    int
	link   netem.Link
	target float64 // target for the ratio of copy to the faster TCP; 0: the copy must complete
}

const (
	mbit = 1_000_000
	kb   = 1 << 10
)

var rows = []row{
	{"MTU 1500, clean", 1500, netem.Link{}, 0.8},
	{"1 % loss", 1500, netem.Link{Loss: 0.01}, 0.9},
	{"10 % loss", 1500, netem.Link{Loss: 0.1}, 0.9},
	{"30 % loss", 1500, netem.Link{Loss: 0.3}, 0},
	{"MTU 9000, 1 % loss", 9000, netem.Link{Loss: 0.01}, 0.9},
	{"MTU 9000, 10 % loss", 9000, netem.Link{Loss: 0.1}, 0.9},
	{"20 ms each way", 1500, netem.Link{Delay: 20 * time.Millisecond}, 0.8},
	{"20 ms and 1 % loss", 1500, netem.Link{Delay: 20 * time.Millisecond, Loss: 0.01}, 0.9},
	{"500 Mbit/s, 64 KB queue", 1500, netem.Link{Rate: 500 * mbit, Queue: 64 * kb}, 0.9},
	{"500 Mbit/s, 16 KB queue", 1500, netem.Link{Rate: 500 * mbit, Queue: 16 * kb}, 0.9},
	{"100 Mbit/s, 32 KB queue", 1500, netem.Link{Rate: 100 * mbit, Queue: 32 * kb}, 0.9},
	{"100 Mbit/s, 32 KB queue, 20 ms", 1500, netem.Link{Rate: 100 * mbit, Queue: 32 * kb, Delay: 20 * time.Millisecond}, 0.8},
	{"2 % reordered by 1 ms", 1500, netem.Link{Reorder: 0.02, ReorderBy: time.Millisecond}, 0.8},
}

func main() {
	var o options
	var only string
	flag.StringVar(&o.softmkey, "softmkey", "softmkey", "the command to measure")
	flag.DurationVar(&o.time, "time", 4*time.Second, "how long one measurement takes, about")
	flag.IntVar(&o.rounds, "rounds", 3, "measurements of each kind, in turn; the median is printed")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the links")
	flag.StringVar(&only, "only", "", "measure only rows whose name contains this")
	flag.BoolVar(&o.verbose, "v", false, "print what the links did with the packets of each measurement, and the rate and size of each copy, on standard error")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, only); err != nil {
		fmt.Fprintln(os.Stderr, "linktable:", err)
		os.Exit(1)
	}
}

type options struct {
	softmkey string
	time     time.Duration
	rounds   int
	seed     uint64
	verbose  bool
	scratch  string // folder in memory for the copied files
}

func run(ctx context.Context, o options, only string) (err error) {
	if o.softmkey, err = exec.LookPath(o.softmkey); err != nil {
		return err
	}
	if o.softmkey, err = filepath.Abs(o.softmkey); err != nil {
		return err
	}
	if o.scratch, err = os.MkdirTemp("/dev/shm", "linktable"); err != nil {
		return err
	}
	defer os.RemoveAll(o.scratch)
	fmt.Println("| link | copy, Mbit/s | BBR, Mbit/s | CUBIC, Mbit/s | copy / faster TCP | target | two copies, larger/smaller | share beside BBR | beside CUBIC | two BBR, larger/smaller | share of BBR beside CUBIC |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, r := range rows {
		if !strings.Contains(r.name, only) {
			continue
		}
		line, err := o.measure(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Println(line)
	}
	return nil
}

// controls are the congestion controls of TCP, as the kernel names them.
var controls = []string{"bbr", "cubic"}

// measure measures a row and returns its line.
func (o options) measure(ctx context.Context, r row) (string, error) {
	var copies, ratios []float64
	tcps := make([][]float64, len(controls))
	size := int64(4 << 20)
	for round := range o.rounds {
		faster := 0.0
		for i, control := range controls {
			t, err := o.tcp(ctx, r, round, control)
			if err != nil {
				return "", err
			}
			tcps[i] = append(tcps[i], t)
			faster = max(faster, t)
		}
		c, err := o.copy(ctx, r, round, &size)
		if err != nil {
			return fmt.Sprintf("| %s | %v | | | | %s | | | | | |", r.name, err, target(r)), nil
		}
		copies, ratios = append(copies, c), append(ratios, c/faster)
	}
	line := fmt.Sprintf("| %s | %.4g | %.4g | %.4g | %.2f | %s |", r.name, median(copies), median(tcps[0]), median(tcps[1]), median(ratios), target(r))
	if r.link.Rate == 0 {
		return line + " | | | | |", nil
	}
	// The file is so large that a copy is not complete before the measurement ends, even if it has the link for itself.
	long := size * int64(2*(o.time+settle)/o.time)
	for _, pair := range []struct {
		ratio   bool // print the ratio of the larger share to the smaller one, in place of the first stream's share
		streams func(k *link.Link) [2]stream
	}{
		{true, func(k *link.Link) [2]stream { return [2]stream{o.copying(k, long, 0), o.copying(k, long, 1)} }},
		{false, func(k *link.Link) [2]stream { return [2]stream{o.copying(k, long, 0), o.tcping(k, "bbr", iperfPort)} }},
		{false, func(k *link.Link) [2]stream { return [2]stream{o.copying(k, long, 0), o.tcping(k, "cubic", iperfPort)} }},
		{true, func(k *link.Link) [2]stream {
			return [2]stream{o.tcping(k, "bbr", iperfPort), o.tcping(k, "bbr", iperfPort+1)}
		}},
		{false, func(k *link.Link) [2]stream {
			return [2]stream{o.tcping(k, "bbr", iperfPort), o.tcping(k, "cubic", iperfPort+1)}
		}},
	} {
		of, err := o.shares(ctx, r, pair.streams)
		if err != nil {
			return "", err
		}
		if pair.ratio {
			of[0] = max(of[0], of[1]) / min(of[0], of[1])
		}
		line += fmt.Sprintf(" %.2f |", of[0])
	}
	return line, nil
}

func target(r row) string {
	if r.target == 0 {
		return "completes"
	}
	return fmt.Sprintf("≥ %.1f", r.target)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
