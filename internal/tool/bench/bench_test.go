package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// short makes measurements so short that only the procedure is tested.
var short = Options{Rounds: 3, Turn: time.Microsecond, SampleRounds: 3, SampleTurn: time.Microsecond}

// fixed returns a case with the given results, one per round.
func fixed(name string, figures ...float64) Case {
	i := -1
	return Case{Name: name, Sample: func(time.Duration) (float64, error) {
		i++
		return figures[i%len(figures)], nil
	}}
}

func run(t *testing.T, r Row) Result {
	t.Helper()
	results, err := Run(context.Background(), []Row{r}, short)
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	return results[0]
}

// Ratios are computed within rounds: a machine that is twice as fast in one round does
// not change them.
func TestRatioWithinRounds(t *testing.T) {
	peer, limit := fixed("peer", 1, 2, 4), fixed("near", 6, 12, 24)
	r := run(t, Row{
		Unit: GBps, Ours: fixed("ours", 3, 6, 12), Peer: &peer, Limit: &limit,
		Target: 3, LimitTarget: 0.6,
	})
	if r.Ours.Median != 6 || r.Ours.Low != 6 && r.Ours.Low != 3 || r.Peer.Median != 2 || r.Ratio != 3 {
		t.Errorf("%+v", r)
	}
	if r.Limit.Name != "near" || r.Fraction != 0.5 {
		t.Errorf("the limit: %+v", r.Limit)
	}
	if !r.HasTarget() || r.Reached() {
		t.Error("half of the limit is not 0.6 of it")
	}
}

// A case whose first calls are slow, because of cold caches, gets no fewer iterations.
func TestCalibrate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // on a clock that only the calls move
		for slow := range 4 {
			calls := 0
			c := Case{Run: func(n int) {
				for range n {
					d := 500 * time.Nanosecond
					if calls++; calls <= slow {
						d = 50 * time.Microsecond
					}
					time.Sleep(d)
				}
			}}
			if got := calibrate(&c, 20*time.Microsecond); got != 40 {
				t.Errorf("%d slow calls first: %d of half a microsecond in 20", slow, got)
			}
		}
		once := Case{Run: func(n int) { time.Sleep(time.Duration(n) * 2 * time.Millisecond) }}
		if got := calibrate(&once, 20*time.Microsecond); got != 1 {
			t.Errorf("%d calls of 2 ms in 20 µs", got)
		}
	})
}

// Alternating cases are compared by their work, not by their order.
func TestAlternatingCases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(d time.Duration) func(int) {
			return func(n int) { time.Sleep(time.Duration(n) * d) }
		}
		peer := Case{Name: "peer", Work: 1000, Run: takes(2 * time.Microsecond)}
		r := Row{Unit: GBps, Ours: Case{Name: "ours", Work: 1000, Run: takes(time.Microsecond)}, Peer: &peer}
		results, err := Run(context.Background(), []Row{r}, Options{Rounds: 9, Turn: time.Millisecond})
		if err != nil || len(results) != 1 {
			t.Fatal(results, err)
		}
		if got := results[0].Ratio; got != 2 {
			t.Errorf("half of the time for the same work: ratio %.2f", got)
		}
	})
}

func TestTargetReached(t *testing.T) {
	for _, c := range []struct {
		r    Result
		want bool
	}{
		{Result{Unit: GBps, Ratio: 2, Target: 2}, true},
		{Result{Unit: GBps, Ratio: 1.9, Target: 2}, false},
		{Result{Unit: Micros, Ratio: 1.5, Target: 1.5}, true},
		{Result{Unit: Micros, Ratio: 1.6, Target: 1.5}, false},
		{Result{Unit: KiB, Ours: Figure{Median: 7}, Bound: 8}, true},
		{Result{Unit: KiB, Ours: Figure{Median: 9}, Bound: 8}, false},
		{Result{Unit: Mops, Ours: Figure{Median: 0.9}, Bound: 1}, false},
		{Result{Unit: GBps, Ratio: 2, Target: 2, Fraction: 0.5, LimitTarget: 0.9}, false},
		{Result{Unit: GBps, Target: 2, Error: "it did not run"}, false},
		{Result{Unit: GBps, Ratio: math.NaN(), Target: 2}, false},
		{Result{Unit: GBps}, true},
	} {
		if got := c.r.Reached(); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

func TestRateUnits(t *testing.T) {
	for u, want := range map[Unit]float64{GBps: 5, Mops: 5000, Micros: 0.0002} {
		c := Case{Work: 100}
		if got := c.rate(u, 50, time.Microsecond); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%s: %v, want %v", u, got, want)
		}
	}
}

// A row that cannot be measured reports the reason; the others are measured.
func TestErrors(t *testing.T) {
	bad := errors.New("bits are missing")
	timed := false
	rows := []Row{
		{Operation: "wrong", Unit: GBps, Check: func() error { return bad },
			Ours: Case{Work: 1, Run: func(int) { timed = true }}},
		{Operation: "broken", Unit: GBps, Ours: Case{Sample: func(time.Duration) (float64, error) { return 0, bad }}},
		{Operation: "nothing", Unit: GBps, Ours: fixed("ours", 0)},
		{Operation: "fine", Unit: GBps, Ours: Case{Work: 1, Run: func(int) {}}},
	}
	var each []Result
	o := short
	o.Each = func(r Result) { each = append(each, r) }
	results, err := Run(context.Background(), rows, o)
	if err != nil || len(results) != 4 || len(each) != 4 {
		t.Fatal(results, err)
	}
	if timed || !strings.Contains(results[0].Error, bad.Error()) {
		t.Error("what is wrong was measured")
	}
	if !strings.Contains(results[1].Error, bad.Error()) || results[2].Error == "" || results[3].Error != "" {
		t.Errorf("%+v", results)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	rows := []Row{{Unit: GBps, Ours: Case{Work: 1, Run: func(int) { cancel(enough) }}}}
	if results, err := Run(ctx, rows, short); err != enough || len(results) != 0 {
		t.Error(results, err)
	}
}

// TestEveryRow measures every row briefly. Names must be unique and results right.
func TestEveryRow(t *testing.T) {
	rows := Rows()
	names := map[string]bool{}
	for i := range rows {
		if name := rows[i].Name(); names[name] {
			t.Errorf("%s is there twice", name)
		} else {
			names[name] = true
		}
	}
	o := short
	o.Filter = regexp.MustCompile("^(sig|xts)/.*/512$|^mkey/")
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		o.Filter = regexp.MustCompile("^mkey/row [CH]") // the kernels in plain Go are slow
	}
	results, err := Run(context.Background(), rows, o)
	fatal.If(t, err)
	for _, r := range results {
		if r.Error != "" || !(r.Ours.Median > 0) {
			t.Errorf("%+v", r)
		}
	}
}

// report returns a report that uses every field.
func report() *Report {
	return &Report{
		Machine: Machine{CPU: "a <fast> one", Cores: 2, Tier: "avx512", OS: "linux/amd64", Go: "go1.26", Peers: []string{"peer 1.0"}},
		Results: []Result{
			{Group: "sig", Operation: "verify", Size: 512, Unit: GBps, Ours: Figure{"softmkey", 123.4, 120, 130},
				Peer: &Figure{Name: "peer", Median: 50}, Ratio: 2.468, Target: 2},
			{Group: "sig", Operation: "sign", Variant: "scattered", Size: 4096, Unit: GBps, Ours: Figure{"softmkey", 12.34, 12, 13},
				Peer: &Figure{Name: "peer", Median: 50}, Ratio: 0.2468, Target: 2,
				Limit: &Figure{Name: "copy", Median: 60}, Fraction: 0.2057, LimitTarget: 0.8},
			{Group: "wire", Operation: "ping-pong", Size: 64, Unit: Micros, Ours: Figure{"softmkey", 9.5, 9, 10},
				Peer: &Figure{Name: "bare UDP", Median: 7}, Ratio: 1.357, Target: 1.5},
			{Group: "wire", Operation: "idle queue pair", Unit: KiB, Ours: Figure{"softmkey", 5, 5, 5}, Bound: 8},
			{Group: "wire", Operation: "lost", Size: 1 << 20, Unit: GBps, Target: 2, Error: "no | answer"},
		},
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	table := Table{W: &b, Peers: true}
	for _, r := range report().Results {
		table.Print(r)
	}
	for _, want := range []string{
		`(?m)^sig +size +ours +peer +ratio +target +limit +of it +target +reached$`,
		`(?m)^verify +512 +123 GB/s +50\.0 +2\.47 +≥ 2\.00 +yes +peer: peer$`,
		`(?m)^sign, scattered +4096 +12\.3 GB/s +50\.0 +0\.25 +≥ 2\.00 +60\.0 +0\.21 +≥ 0\.80 +no: limit +peer: peer, limit: copy$`,
		`(?m)^ping-pong +64 +9\.50 µs +7\.00 +1\.36 +≤ 1\.50 +yes`,
		`(?m)^idle queue pair +5\.00 KiB .*≤ 8\.00.* yes$`,
		`(?m)^lost 1 MiB: no \| answer$`,
	} {
		if !regexp.MustCompile(want).Match(b.Bytes()) {
			t.Errorf("no %s in\n%s", want, &b)
		}
	}
}

func TestCells(t *testing.T) {
	r := report().Results
	for i, want := range map[int]string{0: "123 GB/s | 50.0 (peer) | 2.47"} {
		if got := r[i].Cells(); got != want {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}
	if got, want := (&Result{Unit: "KiB", Ours: Figure{Median: 5}}).Cells(), "5.00 KiB |  | "; got != want {
		t.Errorf("without a peer: %q, want %q", got, want)
	}
}

// A report that is written and read again is unchanged.
func TestJSON(t *testing.T) {
	text, err := json.Marshal(report())
	fatal.If(t, err)
	var back Report
	fatal.If(t, json.Unmarshal(text, &back))
	again, err := json.Marshal(&back)
	if err != nil || !bytes.Equal(again, text) {
		t.Errorf("%s\n%s", text, again)
	}
	if targets, reached := back.Count(); targets != 5 || reached != 3 {
		t.Errorf("%d of %d", reached, targets)
	}
}

func TestProcessorModel(t *testing.T) {
	for text, want := range map[string]string{
		"processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Some(R) CPU @ 2GHz\nstepping\t: 8\n": "Some(R) CPU @ 2GHz (family 6, model 143, stepping 8)",
		"processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n":                                       "implementer 0x41, part 0xd40",
		"":                        "unknown processor",
		"model name\t: Board X\n": "Board X",
	} {
		name := filepath.Join(t.TempDir(), "cpuinfo")
		fatal.If(t, os.WriteFile(name, []byte(text), 0o666))
		if got := model(name); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := model(filepath.Join(t.TempDir(), "none")); got != "unknown processor" {
		t.Error(got)
	}
}

func TestSizeString(t *testing.T) {
	for n, want := range map[int]string{0: "", 512: "512", 4096: "4096", 4160: "4160", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 1 << 30: "1 GiB", 1<<20 + 1: "1048577"} {
		if got := SizeString(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
