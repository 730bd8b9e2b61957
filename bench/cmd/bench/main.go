// Command bench measures softmkey, its peers and the limits of both in one run, and prints
// one table. The peers are ISA-L, alone and as storage stacks use it, OpenSSL, the C
// library's memcpy, cp, iperf3 and bare UDP; programs of perftest run under softmkey run.
// "make bench" runs this program. With --growth it measures how cost grows with the number
// of objects; "make growth" runs it so.
//
//	go run ./cmd/bench [--quick] [--files] [--filter REGEXP | --docs DIR [--note TEXT]]
//	go run ./cmd/bench --growth [--quick] [--files] [--filter REGEXP]
//	go run ./cmd/bench --docs DIR --render
//
// Before a case with a peer is timed, its result is compared with the peer's; the tests of packages isal and openssl
// compare all kinds of fields. With --docs it stores the report under the processor's name in DIR/benchmarks, and writes
// DIR/benchmarks.md, which has a section for each processor. Missed targets are in the
// table like all others. The exit status is 1 if something could not be measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/softmkey/softmkey/internal/tool/bench"
)

func main() {
	do := run
	if text, ok := os.LookupEnv(acceptVar); ok {
		do = func() error { return attempt(func() { acceptAll(text) }) }
	}
	if err := do(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// failure is an error that ends a measurement.
type failure struct{ error }

// attempt measures by f, and returns the error with which check has ended f. It serves code of many steps, each of which
// may fail, and none of which can go on then.
func attempt(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// check ends the attempt in whose goroutine it is called, unless err is nil.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns v, unless err ends the attempt as by check.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// sampled returns the case of a program or a flow. An error ends its measurement by check.
func sampled(name string, sample func(d time.Duration) float64) bench.Case {
	return bench.Case{Name: name, Sample: func(d time.Duration) (v float64, err error) {
		err = attempt(func() { v = sample(d) })
		return v, err
	}}
}

// options holds the command line.
type options struct {
	quick  bool
	files  bool
	dir    string
	docs   string
	note   string
	render bool
	growth bool
	filter string
}

func run() error {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "measure just long enough to show that everything works; the figures mean little")
	flag.BoolVar(&o.files, "files", false, "measure files, too: needs 3.1 GiB of disk space meanwhile")
	flag.StringVar(&o.dir, "dir", cacheDir(), "`directory` for those files")
	flag.StringVar(&o.docs, "docs", "", "`directory` to write benchmarks.md and benchmarks/ to")
	flag.StringVar(&o.note, "note", "", "`text` about the conditions of the run, for --docs")
	flag.BoolVar(&o.render, "render", false, "measure nothing: write benchmarks.md of --docs again from the reports beside it")
	flag.BoolVar(&o.growth, "growth", false, "measure how cost grows with the number of objects, instead of rates")
	flag.StringVar(&o.filter, "filter", "", "only rows whose group/operation/variant/size matches the `regexp`")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is one operand too many", flag.Arg(0))
	}
	if o.docs != "" && (o.quick || o.growth || o.filter != "") {
		return errors.New("--docs is for all rows, and not for --quick, whose figures mean little")
	}
	if o.render {
		return render(o.docs)
	}
	how := bench.Options{}
	if o.quick {
		how = bench.Options{Rounds: 3, Turn: 500 * time.Microsecond, SampleRounds: 1, SampleTurn: 100 * time.Millisecond}
	}
	if err := writable(o.docs); err != nil {
		return fmt.Errorf("--docs %s: %w", o.docs, err)
	}
	var err error
	if how.Filter, err = regexp.Compile("(?i)" + o.filter); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.growth {
		return growth(ctx, &o, how.Filter)
	}

	report := bench.Report{
		Machine: bench.ThisMachine(),
		Command: "make bench",
		Date:    time.Now().UTC().Format(time.DateOnly),
	}
	report.Machine.Peers = versions()
	fmt.Printf("%s\n\n", report.Machine)
	table := bench.Table{W: os.Stdout, Peers: true}
	how.Each = table.Print
	rows, done := rows(&o)
	defer done()
	if report.Results, err = bench.Run(ctx, rows, how); err != nil {
		return err
	}
	targets, reached := report.Count()
	fmt.Printf("\n%d of %d targets reached.\n", reached, targets)
	if o.docs != "" {
		err = write(o.docs, &processor{Report: report, Note: o.note})
	}
	return errors.Join(err, failures(&report))
}

// writable returns an error if no file can be created in a directory. It is called before
// a run, whose results could otherwise not be stored. The empty name is always writable.
func writable(dir string) error {
	if dir == "" {
		return nil
	}
	f, err := os.CreateTemp(dir, ".bench-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// rows returns the rows that the options select, and a function that cleans up after
// them.
func rows(o *options) (rows []bench.Row, done func()) {
	size, queuePairs := 1<<30, 10_000
	if o.quick {
		size, queuePairs = 1<<26, 1000
	}
	rows = append(sigRows(), xtsRows()...)
	rows = append(rows, bench.MKey()...)
	f := &files{folder{parent: o.dir}, size}
	if o.files {
		rows = append(rows, f.rows()...)
	}
	programs := &runs{}
	rows = append(rows, wireRows()...)
	rows = append(rows, scaleRows(queuePairs)...)
	rows = append(append(rows, distanceRow()), programs.rows()...)
	return rows, func() { f.remove(); programs.remove() }
}

// failures returns an error if a row could not be measured or gave a wrong result.
func failures(r *bench.Report) error {
	n := 0
	for i := range r.Results {
		if r.Results[i].Error != "" {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d rows could not be measured", n)
	}
	return nil
}
