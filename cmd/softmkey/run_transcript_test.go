//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transcript is the output of hardware/mkeytranscript.c: the names of its steps in their order, and the line of each.
type transcript struct {
	flags []string // of softmkey run, in the first line of the files of testdata/hardware
	names []string
	lines map[string]string
}

const transcriptHead = "# softmkey run "

func parseTranscript(text string) transcript {
	s := transcript{lines: map[string]string{}}
	for line := range strings.Lines(text) {
		if flags, ok := strings.CutPrefix(line, transcriptHead); ok {
			flags, _, _ = strings.Cut(flags, "-- ")
			s.flags = strings.Fields(flags)
		}
		if name, _, ok := strings.Cut(line, ":"); ok && line[0] != '#' {
			s.names = append(s.names, name)
			s.lines[name] = line
		}
	}
	return s
}

func (s transcript) String() string {
	text := transcriptHead + strings.Join(append(slices.Clone(s.flags), "-- mkeytranscript"), " ") + "\n"
	for _, name := range s.names {
		text += s.lines[name]
	}
	return text
}

// TestRunTranscript runs hardware/mkeytranscript.c. The transcript with no flags of softmkey run is softmkey.txt of
// testdata/hardware. The other files have the steps that come out otherwise with their flags; with the flags of
// the table none does.
func TestRunTranscript(t *testing.T) {
	dir, source := filepath.Join("..", "..", "testdata", "hardware"), filepath.Join("..", "..", "hardware", "mkeytranscript.c")
	tmp := t.TempDir()
	c := filepath.Join(tmp, "mkeytranscript")
	need(t, "gcc")
	out, err := exec.Command("gcc", "-O2", "-Wall", "-Wextra", "-o", c, source, "-libverbs", "-lmlx5").CombinedOutput()
	if err != nil {
		t.Skipf("NOT RUN: the program does not build here (libibverbs-dev): %s", out)
	}
	if len(out) > 0 {
		t.Errorf("gcc warns: %s", out)
	}
	if n := bytes.Count(readFile(t, source), []byte("\n")); n > 900 {
		t.Errorf("the program has %d lines; those who run it read it first, so 900 is the limit", n)
	}
	program := builtProgram(t)
	writeFile(t, filepath.Join(tmp, "kek"), make([]byte, 16), 0o600)
	writeFile(t, filepath.Join(tmp, "credential"), make([]byte, 40), 0o600)
	usual := parseTranscript(string(readFile(t, filepath.Join(dir, "softmkey.txt"))))

	check := func(name string, flags []string, args string) {
		t.Run(name, func(t *testing.T) {
			saved := filepath.Join(t.TempDir(), "out")
			for i, f := range flags {
				flags[i] = strings.ReplaceAll(f, "TMP", tmp)
			}
			runWith(t, program, flags, c+" "+args+" > "+saved)
			got := parseTranscript(string(readFile(t, saved)))
			file := filepath.Join(dir, name+".txt")
			have, err := os.ReadFile(file)
			changed := transcript{flags: parseTranscript(string(have)).flags, lines: map[string]string{}}
			for _, n := range got.names {
				if name == "softmkey" || got.lines[n] != usual.lines[n] {
					changed.names, changed.lines[n] = append(changed.names, n), got.lines[n]
				}
			}
			switch {
			case *update && err == nil:
				writeFile(t, file, []byte(changed.String()), 0o666)
			case err != nil && len(changed.names) > 0, err == nil && changed.String() != string(have), len(got.names) != len(usual.names):
				out, _ := exec.Command(c, "--compare", filepath.Join(dir, "softmkey.txt"), saved).CombinedOutput()
				t.Errorf("the transcript is not the one of %s: beside softmkey.txt,\n%s", dir, out)
			}
			if name == "softmkey" {
				usual = got
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	check("softmkey", nil, "")
	for _, f := range files {
		s := parseTranscript(string(readFile(t, f)))
		if name := strings.TrimSuffix(filepath.Base(f), ".txt"); name != "softmkey" && s.flags != nil {
			check(name, s.flags, "")
		}
	}
	check("strict", []string{"--strict"}, "")
	check("wire", []string{"--wire"}, "")
	check("loss", []string{"--fault", "loss=1%,seed=2"}, "")
	check("two devices", []string{"--device", ownAddress(6)}, "--peer mlx5_1")

	t.Run("compare", func(t *testing.T) {
		one := filepath.Join(dir, "softmkey.txt")
		compare := func(other string) (string, int) {
			t.Helper()
			cmd := exec.Command(c, "--compare", one, other)
			out, _ := cmd.CombinedOutput()
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, code := compare(one); code != 0 {
			t.Errorf("a transcript and itself: status %d: %s", code, out)
		}
		out, code := compare(filepath.Join(dir, "signature-errors-adapter.txt"))
		if code != 1 || !strings.HasPrefix(out, "record: ") || strings.Contains(out, "\noffset: ") || !strings.Contains(out, "offset 519 of block and field") {
			t.Errorf("another order of the values: status %d: %s", code, out)
		}
		other := filepath.Join(t.TempDir(), "other")
		// The last digit of each line of a group is another one.
		for _, name := range usual.names {
			group, step, _ := strings.Cut(name, " ")
			if step != "1" {
				continue
			}
			text := ""
			for _, n := range usual.names {
				line := []byte(usual.lines[n])
				if last := len(line) - 2; strings.HasPrefix(n, group+" ") {
					line[last] ^= 1
				}
				text += string(line)
			}
			writeFile(t, other, []byte(text), 0o666)
			if out, code := compare(other); code != 1 || !strings.HasPrefix(out, group+": ") || strings.Count(out, "steps differ") != 1 {
				t.Errorf("another result of %s: status %d: %s", group, code, out)
			}
		}
		for _, text := range []string{"", "record 1\n", strings.Replace(usual.String(), " near send ", " near read ", 1)} {
			writeFile(t, other, []byte(text), 0o666)
			if out, code := compare(other); code != 2 {
				t.Errorf("a file that cannot be compared: status %d: %s", code, out)
			}
		}
		if _, code := compare(filepath.Join(dir, "absent")); code != 2 {
			t.Errorf("a file that is not there: status %d", code)
		}
	})
}
