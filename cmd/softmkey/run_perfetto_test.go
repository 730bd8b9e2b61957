//go:build linux && (amd64 || arm64)

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// perfettoEvent is an event of Chrome's trace format.
type perfettoEvent struct {
	Ph, Name, Cat, ID string
	Pid, Tid          int
	Ts, Dur           float64
	Args              map[string]any
}

// TestRunPerfetto records a timeline of two programs whose packets are sometimes lost. It checks the
// rules of the format (slices of a track do not overlap, an arrow has both ends), and that the number
// of requests is the one that --summary reports.
func TestRunPerfetto(t *testing.T) {
	need(t, "ib_send_bw")
	program := builtProgram(t)
	dir := t.TempDir()
	trace, summary := filepath.Join(dir, "trace.json"), filepath.Join(dir, "summary.json")
	c := exec.CommandContext(t.Context(), program, "run", "--device", ownAddress(7), "--trace="+trace, "--trace-format", "perfetto", "--summary="+summary,
		"--fault", "loss=1%,seed=5", "--", "sh", "-c", serve("ib_send_bw -F -x 3 -s 8192 -n 300 -p 19891", "ib_send_bw -F -x 3 -s 8192 -n 300 -p 19891 $ADDR"))
	c.Env = append(os.Environ(), "ADDR="+ownAddress(7))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var events []perfettoEvent
	fatal.If(t, json.Unmarshal(readFile(t, trace), &events))
	counts := map[string]int{}
	tracks := map[int][]perfettoEvent{}
	named := map[int]bool{}
	arrows := map[string][2]int{}
	for _, e := range events {
		counts[e.Ph+" "+e.Name]++
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				named[e.Tid] = true
			}
		case "X":
			tracks[e.Tid] = append(tracks[e.Tid], e)
		case "s", "f":
			a := arrows[e.ID]
			a[map[string]int{"s": 0, "f": 1}[e.Ph]]++
			arrows[e.ID] = a
		}
	}
	for tid, slicesOf := range tracks {
		if !named[tid] {
			t.Errorf("track %d has no name", tid)
		}
		slices.SortFunc(slicesOf, func(a, b perfettoEvent) int { return int(1000 * (a.Ts - b.Ts)) })
		for i, e := range slicesOf[1:] {
			if before := slicesOf[i]; before.Ts+before.Dur > e.Ts+0.001 {
				t.Errorf("track %d: %s at %g of %g overlaps %s at %g", tid, before.Name, before.Ts, before.Dur, e.Name, e.Ts)
				break
			}
		}
	}
	if len(arrows) != 300 {
		t.Errorf("%d arrows, want 300", len(arrows))
	}
	for id, ends := range arrows {
		if ends != [2]int{1, 1} {
			t.Errorf("arrow %s has %d begins and %d ends", id, ends[0], ends[1])
		}
	}
	if counts["X SEND"] != 300 || counts["X RECV"] < 300 || counts["M process_name"] != 2 || counts["i retransmit"] == 0 || counts["i doorbell"] == 0 {
		t.Errorf("events: %v", counts)
	}
	checkSummary(t, summary)
}

// checkSummary checks the counts of the 300 SENDs.
func checkSummary(t *testing.T, name string) {
	t.Helper()
	var report struct {
		Operations []struct {
			Operation    string
			Count, Bytes uint64
			Median       float64 `json:"median_us"`
			NinetyNine   float64 `json:"p99_us"`
			Again        uint64  `json:"retransmitted_packets"`
			Errors       uint64
		}
	}
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	fatal.If(t, err)
	seen := 0
	for _, o := range report.Operations {
		switch o.Operation {
		case "SEND":
			seen++
			if o.Count != 300 || o.Bytes != 300*8192 || o.Median <= 0 || o.NinetyNine < o.Median || o.Again == 0 || o.Errors != 0 {
				t.Errorf("SEND: %+v", o)
			}
		case "RECV":
			seen++
			if o.Bytes != 300*8192 {
				t.Errorf("RECV: %+v", o)
			}
		}
	}
	if seen != 2 {
		t.Errorf("the summary: %s", text)
	}
}
