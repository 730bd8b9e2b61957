//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// validator reads a schema and a trace, and prints the lines that do not fit.
const validator = `
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft7Validator.check_schema(schema)
v = jsonschema.Draft7Validator(schema)
n = bad = 0
for line in open(sys.argv[2]):
    n += 1
    for e in v.iter_errors(json.loads(line)):
        bad += 1
        print("%s\n  %s: %s" % (line.strip()[:600], "/".join(map(str, e.absolute_path)), e.message[:300]))
        break
sys.exit(bad > 0 or n == 0)
`

// TestRunTraceSchema validates the traces of programs against docs/trace.schema.json with
// Python's jsonschema, and checks that every request has an end.
func TestRunTraceSchema(t *testing.T) {
	if exec.Command("python3", "-c", "import jsonschema").Run() != nil {
		t.Skip("NOT RUN: the validation needs Debian's package python3-jsonschema")
	}
	program := builtProgram(t)
	seen := map[string]int{}
	need(t, "ib_write_bw", "ib_send_bw", "rping", "ibv_srq_pingpong")
	for _, test := range []struct{ name, command, fault string }{
		{name: "signature"}, {name: "crypto"}, {name: "layout"}, {name: "pipelining"}, {name: "completions"}, {name: "objects"}, {name: "absent"}, {name: "domains"}, {name: "accel"},
		{name: "loss", command: serve("ib_write_bw -F -x 3 -n 300 -p 19881", "ib_write_bw -F -x 3 -n 300 -p 19881 $ADDR"), fault: "loss=1%,seed=5"},
		{name: "cm", command: serve("rping -s -C 5 -a $ADDR -p 19882", "rping -c -C 5 -a $ADDR -p 19882")},
		{name: "srq", command: serve("ibv_srq_pingpong -g 3 -n 50 -p 19883", "ibv_srq_pingpong -g 3 -n 50 -p 19883 $ADDR")},
		{name: "killed", command: "ib_send_bw -F -x 3 -s 8388608 -D 30 -p 19884 & server=$!; sleep 1; timeout -s KILL 2 ib_send_bw -F -x 3 -s 8388608 -D 30 -p 19884 $ADDR; kill -9 $server"},
	} {
		t.Run(test.name, func(t *testing.T) {
			command := test.command
			if command == "" {
				command = buildExample(t, test.name)
			}
			trace := filepath.Join(t.TempDir(), "trace.json")
			args := []string{"run", "--device", ownAddress(7), "--trace=" + trace, "--trace-format", "json"}
			if test.fault != "" {
				args = append(args, "--fault", test.fault)
			}
			out, err := rpings(t, func(ctx context.Context) *exec.Cmd {
				c := exec.CommandContext(ctx, program, append(args, "--", "sh", "-c", command)...)
				c.Env = append(os.Environ(), "ADDR="+ownAddress(7))
				return c
			})
			if err != nil && test.name != "killed" {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := exec.Command("python3", "-c", validator, filepath.Join("..", "..", "docs", "trace.schema.json"), trace).CombinedOutput(); err != nil {
				t.Errorf("the trace does not fit the schema:\n%.4000s", out)
			}
			checkEnds(t, readFile(t, trace), seen)
		})
	}
	for _, kind := range []string{"object", "state", "request", "completion", "event", "signature", "refused", "end", "doorbell", "transport"} {
		if seen[kind] == 0 {
			t.Errorf("no record of kind %s was seen: %v", kind, seen)
		}
	}
}

// checkEnds checks that the requests of each QP end, in their order, and counts the kinds of
// records.
func checkEnds(t *testing.T, trace []byte, kinds map[string]int) {
	t.Helper()
	open := map[uint32][]uint64{}
	for line := range bytes.Lines(trace) {
		var r struct {
			Kind, Action string
			Number       uint32
			Fields       struct {
				Request uint64
				Opcode  string
			}
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		kinds[r.Kind]++
		switch r.Kind {
		case "request":
			open[r.Number] = append(open[r.Number], r.Fields.Request)
		case "completion", "end":
			if len(r.Fields.Opcode) > 3 && r.Fields.Opcode[:4] == "RECV" {
				continue
			}
			first := open[r.Number]
			if len(first) == 0 || first[0] != r.Fields.Request {
				t.Fatalf("an end without its request: %s", line)
			}
			open[r.Number] = first[1:]
		}
	}
	for qp, requests := range open {
		if len(requests) > 0 {
			t.Errorf("QP %#x: requests %v have no end", qp, requests)
		}
	}
}

// buildExample builds an example in C and returns the program.
func buildExample(t *testing.T, name string) string {
	t.Helper()
	sources := filepath.Join("..", "..", "examples", "c")
	program := filepath.Join(t.TempDir(), name)
	args := []string{"-Wall", "-O1", "-o", program, filepath.Join(sources, name+".c"), filepath.Join(sources, "pair.c"), "-libverbs", "-lmlx5"}
	if name == "crypto" || name == "accel" {
		args = append(args, "-lcrypto")
	}
	compile(t, "libibverbs-dev, libssl-dev", "gcc", args...)
	return program
}
