// Command report shows the results of the steps of scripts/test.sh, for people.
//
//	report step DIR NAME STATUS SECONDS   prints the result of a step, and its failures
//	report end DIR                        prints the table of all steps, and what was not run
//
// The output of the step NAME is in DIR/NAME.out: text, or the events of go test -json. report step
// turns it into the text DIR/NAME.log and appends a line to DIR/results. A line of the text that begins with
// "NOT RUN: " says that the step, or a part of it, was not run. report end
// exits with status 1 if anything failed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// A result is what is known of a step: a line of DIR/results.
type result struct {
	Step    string
	Failed  bool
	Passed  int // tests at the top level that passed; 1 for a step without tests
	Seconds int
	Faults  []fault // why it failed
	Skips   []fault // tests that were skipped, or the step itself
}

func (r *result) state() string {
	switch {
	case r.Failed:
		return "FAILED"
	case r.Passed == 0 && len(r.Skips) > 0:
		return "not run"
	}
	return "ok"
}

// A fault is a test or a package that failed or was skipped, and the first line of the reason. The
// package and the test may be empty.
type fault struct{ Package, Test, Reason string }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 5 && args[0] == "step":
		status, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		seconds, err := strconv.Atoi(args[4])
		if err != nil {
			return err
		}
		return step(args[1], args[2], status, seconds)
	case len(args) == 2 && args[0] == "end":
		return end(args[1])
	}
	return fmt.Errorf("%q: must be step DIR NAME STATUS SECONDS or end DIR", args)
}

// step reports a step that has ended. The whole report is one write, because steps run beside each other.
func step(dir, name string, status, seconds int) error {
	in, err := os.Open(filepath.Join(dir, name+".out"))
	if err != nil {
		return err
	}
	defer in.Close()
	all, err := read(in)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, name+".log")
	if err := os.WriteFile(file, all.text(), 0o666); err != nil {
		return err
	}
	r := result{Step: name, Seconds: seconds, Failed: status != 0}
	var text []byte
	text, r.Faults, r.Skips, r.Passed = all.failures(status, file)
	out := fmt.Appendf(nil, "%-8s %s (%d s)\n", r.state(), name, seconds)
	if _, err := os.Stdout.Write(append(out, text...)); err != nil {
		return err
	}
	if err := os.Remove(in.Name()); err != nil {
		return err
	}
	return note(dir, r)
}

// note appends a line to DIR/results.
func note(dir string, r result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "results"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
