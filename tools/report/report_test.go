package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// events returns the output of go test -json: each line is "action package test output".
func events(t *testing.T, lines ...[4]string) string {
	t.Helper()
	var b strings.Builder
	for _, l := range lines {
		e := event{Action: l[0], Package: l[1], Test: l[2], Output: l[3]}
		if l[0] == "build-output" || l[0] == "build-fail" {
			e.ImportPath, e.Package = l[1]+" ["+l[1]+".test]", ""
		}
		if l[2] == "FailedBuild" {
			e.FailedBuild, e.Test = l[1], ""
		}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

func parsed(t *testing.T, text string) *log {
	t.Helper()
	l, err := read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const pkg = "github.com/softmkey/softmkey/cm"

// TestFailures holds which units are shown, how often, and with which reason.
func TestFailures(t *testing.T) {
	for _, test := range []struct {
		name   string
		in     string
		status int
		want   []fault
	}{
		{"a test", events(t, [4]string{"run", pkg, "TestA"}, [4]string{"output", pkg, "TestA", "=== RUN   TestA\n"},
			[4]string{"output", pkg, "TestA", "    a_test.go:2: seed 5\n"}, [4]string{"output", pkg, "TestA", "    a_test.go:3: got 1\n"}, [4]string{"output", pkg, "TestA", "--- FAIL: TestA (0.00s)\n"},
			[4]string{"fail", pkg, "TestA"}, [4]string{"output", pkg, "", "FAIL\n"}, [4]string{"fail", pkg, ""}), 1,
			[]fault{{"cm", "TestA", "a_test.go:3: got 1"}}},
		{"a subtest", events(t, [4]string{"run", pkg, "TestA"}, [4]string{"run", pkg, "TestA/b"},
			[4]string{"output", pkg, "TestA/b", "        script.go:1: > exec x\n"}, [4]string{"output", pkg, "TestA/b", "        FAIL: a.txt:7: unexpected\n"},
			[4]string{"fail", pkg, "TestA/b"}, [4]string{"output", pkg, "TestA", "--- FAIL: TestA\n"}, [4]string{"fail", pkg, "TestA"}, [4]string{"fail", pkg, ""}), 1,
			[]fault{{"cm", "TestA/b", "a.txt:7: unexpected"}}},
		{"a panic", events(t, [4]string{"run", pkg, "TestA"}, [4]string{"output", pkg, "TestA", "panic: no\n"}, [4]string{"fail", pkg, ""}), 1,
			[]fault{{"cm", "TestA", "panic: no"}}},
		{"TestMain", events(t, [4]string{"output", pkg, "", "no memory\n"}, [4]string{"output", pkg, "", "FAIL\t" + pkg + "\t0.1s\n"}, [4]string{"fail", pkg, ""}), 1,
			[]fault{{"cm", "", "no memory"}}},
		{"a build", events(t, [4]string{"build-output", pkg, "", "# " + pkg + "\n"}, [4]string{"build-output", pkg, "", "cm/a.go:3:1: syntax\n"},
			[4]string{"build-fail", pkg, ""}, [4]string{"output", pkg, "", "FAIL\t" + pkg + " [build failed]\n"}, [4]string{"fail", pkg, "FailedBuild"}), 1,
			[]fault{{"cm", "", "cm/a.go:3:1: syntax"}}},
		{"a command", "go: downloading x\nnot gofmt-ed: a.go\n", 1, []fault{{"", "", "not gofmt-ed: a.go"}}},
		{"a silent command", "", 7, []fault{{"", "", "exit status 7"}}},
		{"events and a command", events(t, [4]string{"run", pkg, "TestA"}, [4]string{"pass", pkg, "TestA"}, [4]string{"pass", pkg, ""}) + "no such flag\n", 2,
			[]fault{{"", "", "no such flag"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, faults, _, _ := parsed(t, test.in).failures(test.status, "x.log")
			if fmt.Sprint(faults) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", faults, test.want)
			}
			for _, f := range test.want {
				if n := strings.Count(string(text), f.Reason); n != 1 {
					t.Errorf("the reason is printed %d times: %s", n, text)
				}
			}
		})
	}
}

// TestLimits holds that a failure has at most maxLines lines, both ends among them, without bytes
// that a terminal does not print.
func TestLimits(t *testing.T) {
	lines := []string{"first \x1b[31m\xff\x00é"}
	for i := range 5000 {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	lines = append(lines, strings.Repeat("x", 10*maxLine))
	got := limited(lines, "dir/x.log")
	if len(got) > maxLines+1 {
		t.Errorf("%d lines", len(got))
	}
	if want := `first \x1b[31m\xff\x00é`; got[0] != want {
		t.Errorf("got %s, want %s", got[0], want)
	}
	if end := got[len(got)-1]; len(end) > maxLine+30 || end[:2] != "xx" {
		t.Errorf("the last line is %s", end)
	}
	left := 0
	for _, line := range got {
		var n int
		if _, err := fmt.Sscanf(line, "... %d lines are left out", &n); err == nil {
			left += n
		}
	}
	if left+len(got)-1 != len(lines) {
		t.Errorf("%d lines are printed, %d left out, of %d", len(got)-1, left, len(lines))
	}
}

// TestSkips holds the reasons for what was not run.
func TestSkips(t *testing.T) {
	in := events(t, [4]string{"run", pkg, "TestA"}, [4]string{"output", pkg, "TestA", "    a_test.go:3: NOT RUN: exec: \"no-such-program\": executable file not found in $PATH\n"},
		[4]string{"skip", pkg, "TestA"}, [4]string{"run", pkg, "TestB"}, [4]string{"output", pkg, "TestB", "    a_test.go:9: NOT RUN: no kernel here\n"},
		[4]string{"pass", pkg, "TestB"}, [4]string{"pass", pkg, ""}) + "NOT RUN: this needs no-such-package to make it\n"
	in += events(t, [4]string{"run", pkg, "TestC"}, [4]string{"output", pkg, "TestC", "    a_test.go:9: NOT RUN: the example does not build here (libx-dev): In file included from a.c:1:\n"},
		[4]string{"output", pkg, "TestC", "        a.c:1: fatal error\n"}, [4]string{"skip", pkg, "TestC"}, [4]string{"run", pkg, "TestD/x"}, [4]string{"output", pkg, "TestD/x", "        testscript.go:6: WORK=$WORK\n"},
		[4]string{"output", pkg, "TestD/x", "        > [!exec:tshark] skip 'tshark is missing'\n"}, [4]string{"skip", pkg, "TestD/x"})
	text, faults, skips, passed := parsed(t, in).failures(0, "x.log")
	if len(faults) != 0 || len(text) != 0 || passed != 1 {
		t.Errorf("%d passed, %v: %s", passed, faults, text)
	}
	want := []fault{{"cm", "TestA", `exec: "no-such-program": executable file not found in $PATH`}, {"cm", "TestB", "no kernel here"}, {"cm", "TestC", "the example does not build here (libx-dev)"}, {"cm", "TestD/x", "tshark is missing"}, {"", "", "this needs no-such-package to make it"}}
	if fmt.Sprint(skips) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", skips, want)
	}
}
