package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// end prints the table of all steps, what was not run, and the totals.
func end(dir, packages string) error {
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
	table, err := os.ReadFile(packages)
	if err != nil {
		return err
	}
	passed, failed, skipped := 0, 0, 0
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
	notRun(results, string(table))
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 {
		os.Exit(1)
	}
	return nil
}

func (f fault) String() string {
	return strings.TrimSpace(strings.TrimSpace(f.Package+" "+f.Test) + "  " + f.Reason)
}

// notRun prints the tests and steps that were not run, by reason, and the command that installs what they lack.
func notRun(results []result, table string) {
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
	if lacking := lacking(reasons, table); len(lacking) > 0 {
		fmt.Printf("What they need is installed by:\n  apt-get install -y --no-install-recommends %s\n", strings.Join(lacking, " "))
	}
}

// word is a name that may be a package's; a program has quotation marks around it, as exec.LookPath writes them.
var word = regexp.MustCompile(`"?[A-Za-z0-9][A-Za-z0-9_.+-]*[A-Za-z0-9]"?`)

// lacking returns the packages that the reasons name, themselves or by a program, and that are not installed.
func lacking(reasons []string, table string) []string {
	of := map[string]string{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		of[fields[1]] = fields[1]
		for _, program := range fields[2:] {
			of[strconv.Quote(program)] = fields[1]
		}
	}
	var found []string
	for _, reason := range reasons {
		for _, w := range word.FindAllString(reason, -1) {
			p := of[w]
			if p != "" && !slices.Contains(found, p) && !installed(p) {
				found = append(found, p)
			}
		}
	}
	slices.Sort(found)
	return found
}

func installed(p string) bool {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
	return err == nil && string(out) == "installed"
}
