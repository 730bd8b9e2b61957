package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// end prints what was not run, the table of all steps with their failures, and the totals: the end of a long log is
// what its reader sees first.
func end(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "results"))
	if err != nil {
		return err
	}
	var results []result
	for line := range bytes.Lines(data) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		results = append(results, r)
	}
	passed, failed, skipped := 0, 0, 0
	notRun(results)
	fmt.Printf("\n%-40s %8s  %s\n", "step", "seconds", "result")
	for _, r := range results {
		passed += r.Passed
		failed += len(r.Faults)
		skipped += len(r.Skips)
		fmt.Printf("%-40s %8d  %s\n", r.Step, r.Seconds, r.state())
		for _, f := range r.Faults {
			fmt.Printf("    %s\n", f)
		}
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 {
		os.Exit(1)
	}
	return nil
}

func (f fault) String() string {
	return strings.TrimSpace(strings.TrimSpace(f.Package+" "+f.Test) + "  " + f.Reason)
}

// notRun prints the tests and steps that were not run, by reason.
func notRun(results []result) {
	var reasons []string
	names := map[string][]string{}
	for _, r := range results {
		for _, s := range r.Skips {
			name := s.Test
			if name == "" {
				name = "the step " + r.Step
			} else if s.Package != "" {
				name = s.Package + " " + s.Test
			}
			if names[s.Reason] == nil {
				reasons = append(reasons, s.Reason)
			}
			if !slices.Contains(names[s.Reason], name) {
				names[s.Reason] = append(names[s.Reason], name)
			}
		}
	}
	if len(reasons) == 0 {
		return
	}
	fmt.Println("\nNot run, and why:")
	for _, reason := range reasons {
		tests := names[reason]
		more := ""
		if len(tests) > 3 {
			more = fmt.Sprintf(" and %d more", len(tests)-3)
			tests = tests[:3]
		}
		fmt.Printf("  %s\n      %s%s\n", reason, strings.Join(tests, ", "), more)
	}
	fmt.Println("Programs that they need are installed by: sudo make setup")
}
