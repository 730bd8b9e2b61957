//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// texts returns the texts of a picture, which must be well-formed XML.
func texts(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	d := xml.NewDecoder(f)
	for {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text, ok := token.(xml.CharData); ok && len(bytes.TrimSpace(text)) > 0 {
			all = append(all, string(text))
		}
	}
}

// tracedRun runs a program with a trace and a recording. It returns the names of both files, and
// the program's output.
func tracedRun(t *testing.T, softmkey, command string, more ...string) (trace, recording string, out []byte) {
	t.Helper()
	dir := t.TempDir()
	trace, recording = filepath.Join(dir, "run.json"), filepath.Join(dir, "run.pcapng")
	args := append([]string{"run", "--device", ownAddress(8), "--trace=" + trace, "--trace-format", "json", "--pcap", recording}, more...)
	c := exec.CommandContext(t.Context(), softmkey, append(args, "--", "sh", "-c", command)...)
	c.Env = append(os.Environ(), "ADDR="+ownAddress(8))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return trace, recording, out
}

// TestDrawKey draws the key of an example that finds a bad block: the picture has the numbers that
// the program printed.
func TestDrawKey(t *testing.T) {
	program := builtProgram(t)
	trace, _, out := tracedRun(t, program, buildExample(t, "pipelining"))
	want := regexp.MustCompile(`a bad guard at offset (\d+)`).FindSubmatch(out)
	if want == nil {
		t.Fatalf("the program printed no bad block: %s", out)
	}
	for _, picture := range []string{"key", "way"} {
		svg := filepath.Join(t.TempDir(), picture+".svg")
		if out, err := exec.Command(program, "draw", "--picture", picture, "-o", svg, trace).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := texts(t, svg)
		for _, part := range []string{
			fmt.Sprintf("bad guard in block 5, wire offset %s", want[1]), "memory domain", "wire domain", "T10-DIF, 512+8",
		} {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %q in\n%s", picture, part, got)
			}
		}
	}
	if out, err := exec.Command(program, "draw", "--number", "1", trace).CombinedOutput(); err == nil || !strings.Contains(string(out), "no configuration of a memory key with the numbers of --number") {
		t.Errorf("a key that is not there: %v: %s", err, out)
	}
}

// TestDrawWay draws an RDMA READ through the keys of both sides: the picture has their four domains.
func TestDrawWay(t *testing.T) {
	program := builtProgram(t)
	trace, _, _ := tracedRun(t, program, buildExample(t, "domains"))
	svg := filepath.Join(t.TempDir(), "way.svg")
	if out, err := exec.Command(program, "draw", "-o", svg, trace).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := texts(t, svg)
	for part, n := range map[string]int{
		"requester: memory key": 1, "responder: memory key": 1, "memory domain": 2, "wire domain": 2, "T10-DIF, 512+8": 3, "no signature": 1,
		"bad application tag in block 0, wire offset 0": 1, "stored 0x5678, computed 0x5679": 1,
	} {
		if strings.Count(got, part) != n {
			t.Errorf("%q is not there %d times:\n%s", part, n, got)
		}
	}
}

// TestDrawTimeline draws a connection with packets that are lost on purpose. The picture must have
// the losses and the retransmissions.
func TestDrawTimeline(t *testing.T) {
	program := builtProgram(t)
	_, recording, _ := tracedRun(t, program, buildC(t, "neighbour", "neighbour.c")+" 20", "--fault", "loss=5%,seed=3")
	svg := filepath.Join(t.TempDir(), "timeline.svg")
	if out, err := exec.Command(program, "draw", "-o", svg, recording).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := texts(t, svg)
	for _, part := range []string{"lost on the way", "again ", "requester", "responder", ", QP 0x", " ms"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %q in\n%s", part, got)
		}
	}
}
