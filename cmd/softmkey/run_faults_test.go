//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunFaults transfers data over a network with each fault. All bytes must arrive unchanged.
func TestRunFaults(t *testing.T) {
	neighbour, program := buildC(t, "neighbour", "neighbour.c"), builtProgram(t)
	for _, fault := range []string{"loss=5%", "duplicate=5%", "reorder=5%", "delay=5%", "corrupt=5%", "truncate=5%", "flip=20"} {
		t.Run(fault, func(t *testing.T) {
			recording := filepath.Join(t.TempDir(), "run.pcapng")
			c := exec.CommandContext(t.Context(), program, "run", "--device", ownAddress(5), "--fault", fault+",seed=3", "--pcap", recording, "--", neighbour, "40")
			if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "40 rounds") {
				t.Errorf("%v: %s", err, out)
			}
			if info, err := os.Stat(recording); err != nil || info.Size() < 1<<20 {
				t.Errorf("the recording: %v", err)
			}
		})
	}
}

// TestRunTrace reads the trace of a program as JSON, including the records after the end of the
// program, and checks the fields that every record must have.
func TestRunTrace(t *testing.T) {
	neighbour, program := buildC(t, "neighbour", "neighbour.c"), builtProgram(t)
	t.Setenv("NEIGHBOUR_LEAVES", "1")
	trace := filepath.Join(t.TempDir(), "trace.json")
	c := exec.CommandContext(t.Context(), program, "run", "--device", ownAddress(6), "--trace="+trace, "--trace-format", "json", "--", neighbour, "3")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kinds := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct {
			Time, Kind, Object, Action string
			Process                    int
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if r.Time == "" || r.Object == "" || r.Action == "" || r.Process == 0 {
			t.Errorf("a field is missing: %s", lines.Bytes())
		}
		kinds[r.Kind]++
	}
	if kinds["request"] != 6 || kinds["completion"] != 6 || kinds["object"] < 10 || kinds["state"] < 6 {
		t.Errorf("records: %v", kinds)
	}
}

// TestRunUsage checks the errors that are found before a program starts.
func TestRunUsage(t *testing.T) {
	program := builtProgram(t)
	for _, test := range []struct{ flags, says string }{
		{"--device 192.0.2.1 -- true", "--device 192.0.2.1 is no address of this host"},
		{"--name a/b -- true", "a device's name has 1 to 63 characters"},
		{"--name a --name b -- true", "--name b: there are 2 names, but only 1 device"},
		{"--metrics here -- true", "--metrics here: must be HOST:PORT with an address of this host"},
		{"--device 127.7.7.7 --device 127.7.7.7 -- true", "--device 127.7.7.7 is given twice"},
		{"--device 0.0.0.0 -- true", "--device 0.0.0.0: "},
		{"--trace trace.txt -- true", "--trace=trace.txt"},
		{"--summary=no/such/file -- true", "--summary: create no/such/file: the directory no/such: "},
		{"--fault loss=2 -- true", "loss=2: the unit is missing: 2% or, as a fraction, 0.02"},
		{"--trace-kind request -- true", "give --trace too"},
		{"--trace=/dev/null --trace-kind x -- true", "the kinds are"},
		{"--crypto open -- true", "the import modes are plaintext and wrapped"},
		{"--kek 1=key -- true", "belong to --crypto wrapped"},
	} {
		out, err := exec.CommandContext(t.Context(), program, append([]string{"run"}, strings.Fields(test.flags)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: %v: %s", test.flags, err, out)
		}
	}
}
