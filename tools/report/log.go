package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLines is how many lines of a failure are printed, and maxLine how many bytes of a line.
const (
	maxLines = 200
	maxLine  = 400
)

// An event is a line of go test -json: an event of a test, or of a build.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
}

// A unit is a test, a package outside of its tests, a build, or the output of a command that is not
// go test (all names empty).
type unit struct {
	pkg, test string
	state     string // the last action: run, pass, fail or skip
	built     bool   // a package that failed because another one was not built, which is a unit of its own
	lines     []string
	partial   string // the last line, without its end
}

// A log is the output of a step, sorted by units in the order in which they began.
type log struct {
	units []*unit
	index map[[2]string]*unit
}

func (l *log) unit(pkg, test string) *unit {
	key := [2]string{pkg, test}
	u := l.index[key]
	if u == nil {
		u = &unit{pkg: pkg, test: test}
		l.index[key] = u
		l.units = append(l.units, u)
	}
	return u
}

func (u *unit) add(s string) {
	u.partial += s
	for {
		line, rest, ok := strings.Cut(u.partial, "\n")
		if !ok {
			return
		}
		u.lines = append(u.lines, line)
		u.partial = rest
	}
}

// read reads the output of a step. Lines that are not events belong to the unit without names.
func read(r io.Reader) (*log, error) {
	l := &log{index: map[[2]string]*unit{}}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var e event
		switch {
		case len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &e) == nil && e.Action != "":
			l.event(e)
		case len(line) > 0:
			l.unit("", "").add(strings.TrimSuffix(string(line), "\n") + "\n")
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	for _, u := range l.units {
		if u.partial != "" {
			u.add("\n")
		}
	}
	return l, nil
}

func (l *log) event(e event) {
	pkg := e.Package
	if pkg == "" {
		pkg, _, _ = strings.Cut(e.ImportPath, " ") // "path [path.test]" is the build of a test
	}
	u := l.unit(pkg, e.Test)
	switch e.Action {
	case "output", "build-output":
		u.add(e.Output)
	case "build-fail":
		u.state = "fail"
	case "run", "pass", "skip", "fail":
		u.state = e.Action
		failed, _, _ := strings.Cut(e.FailedBuild, " ")
		u.built = failed != "" && failed != pkg
	}
}

// text returns everything, unit by unit.
func (l *log) text() []byte {
	var b bytes.Buffer
	for _, u := range l.units {
		if len(u.lines) == 0 {
			continue
		}
		if name := u.name(); name != "" {
			fmt.Fprintf(&b, "=== %s\n", name)
		}
		for _, line := range u.lines {
			b.WriteString(quote(line))
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func (u *unit) name() string { return strings.TrimSpace(short(u.pkg) + " " + u.test) }

// short returns an import path without that of the repository.
func short(pkg string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg, "github.com/softmkey/softmkey"), "/")
}

// failures returns the failures as text and as faults, the skipped tests, and the number of passed ones.
func (l *log) failures(status int, file string) (text []byte, faults, skips []fault, passed int) {
	var b bytes.Buffer
	show := func(u *unit, lines []string) {
		reason := reason(lines)
		faults = append(faults, fault{short(u.pkg), u.test, reason})
		if name := u.name(); name != "" {
			fmt.Fprintf(&b, "--- %s\n", name)
		}
		for _, line := range limited(lines, file) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	for _, u := range l.units {
		lines := u.said()
		top := u.test != "" && !strings.Contains(u.test, "/")
		switch {
		case u.state == "skip" && u.test != "":
			skips = append(skips, fault{short(u.pkg), u.test, skipReason(lines)})
		case u.state == "pass" && top:
			passed++
			fallthrough
		case u.state == "pass":
			for _, line := range lines {
				if _, why, ok := strings.Cut(line, ": NOT RUN: "); ok { // a part of the test
					skips = append(skips, fault{short(u.pkg), u.test, clean(why)})
				}
			}
		case u.test != "" && (u.state == "fail" || u.state == "run"): // run: the process ended, or was stopped
			if u.state == "fail" && len(lines) == 0 && l.below(u) {
				continue // a test that failed because of a subtest
			}
			show(u, lines)
		}
	}
	// A package that failed without a test that did says why itself: TestMain, a build, a panic elsewhere.
	for _, u := range l.units {
		known := slices.ContainsFunc(faults, func(f fault) bool { return f.Package == short(u.pkg) })
		if u.pkg != "" && u.test == "" && u.state == "fail" && !u.built && !known {
			show(u, u.said())
		}
	}
	plain := l.index[[2]string{}]
	if plain != nil {
		for _, line := range plain.lines {
			if why, ok := strings.CutPrefix(line, "NOT RUN: "); ok {
				skips = append(skips, fault{Reason: clean(why)})
			}
		}
	}
	switch {
	case status == 0 && passed == 0 && len(skips) == 0:
		passed = 1 // a step without tests
	case status != 0 && len(faults) == 0:
		if plain == nil {
			plain = &unit{}
		}
		show(plain, append(plain.said(), fmt.Sprintf("exit status %d", status)))
	}
	if len(faults) > 0 {
		fmt.Fprintf(&b, "    everything: %s\n", file)
	}
	return b.Bytes(), faults, skips, passed
}

// below reports whether a subtest of u failed.
func (l *log) below(u *unit) bool {
	return slices.ContainsFunc(l.units, func(v *unit) bool {
		return v.pkg == u.pkg && strings.HasPrefix(v.test, u.test+"/") && v.state == "fail"
	})
}

var (
	// progress is a line that package testing prints for each test, or go test for each package.
	progress = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME)|--- (PASS|FAIL|SKIP)|(PASS|FAIL)$|(ok|FAIL)\s+\S+\s|exit status \d+$)`)
	// logged is a line of T.Log, T.Error and the like.
	logged = regexp.MustCompile(`^\s+[^\s:]+\.go:\d+: `)
	// cause is a line that names the reason, where it is not the first one of a test.
	cause = regexp.MustCompile(`^\s*(FAIL: |panic: |fatal error: |WARNING: DATA RACE|SIG[A-Z]+: )`)
	// compiled is a message of a compiler or of vet.
	compiled = regexp.MustCompile(`^\s*(vet: )?[^\s:]+\.(go|c|h|s):\d+`)
)

// said returns the lines of a unit without those of package testing.
func (u *unit) said() []string {
	return slices.DeleteFunc(slices.Clone(u.lines), func(line string) bool {
		return progress.MatchString(line) || strings.TrimSpace(line) == ""
	})
}

// reason returns the line that says why, of the lines of a failure: a line that names the cause, the last one that
// the test logged, because earlier ones may be remarks, or the first one of a compiler.
func reason(lines []string) string {
	if i := slices.IndexFunc(lines, cause.MatchString); i >= 0 {
		return clean(strings.TrimPrefix(strings.TrimSpace(lines[i]), "FAIL: "))
	}
	for _, line := range slices.Backward(lines) {
		if logged.MatchString(line) {
			return clean(strings.TrimSpace(line))
		}
	}
	if i := slices.IndexFunc(lines, compiled.MatchString); i >= 0 {
		return clean(strings.TrimSpace(lines[i]))
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading ") {
			return clean(line)
		}
	}
	return "no output"
}

// skipped is the command of a testscript that skips the rest of it.
var skipped = regexp.MustCompile(`^\s*> (?:\[[^\]]*\] )*skip '?(.*?)'?$`)

// skipReason returns the reason for a skip, which is the last line that the test logged. What a compiler said
// about a program that does not build is left out.
func skipReason(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if m := skipped.FindStringSubmatch(lines[i]); m != nil {
			return clean(m[1])
		}
	}
	for i := len(lines) - 1; i >= 0; i-- {
		if at := logged.FindString(lines[i]); at != "" {
			why := strings.TrimPrefix(lines[i][len(at):], "NOT RUN: ")
			if short, _, ok := strings.Cut(why, "): "); ok && strings.Contains(short, "does not build here (") {
				why = short + ")"
			}
			return clean(why)
		}
	}
	return "no reason is given"
}

// limited returns at most maxLines lines, quoted. The middle of more lines is left out, because the
// reason is at the beginning or at the end.
func limited(lines []string, file string) []string {
	if left := len(lines) - maxLines + 1; left > 1 {
		note := fmt.Sprintf("... %d lines are left out: %s", left, path.Base(file))
		lines = slices.Concat(lines[:maxLines/2], []string{note}, lines[maxLines/2+left:])
	}
	var out []string
	for _, line := range lines {
		out = append(out, clean(line))
	}
	return out
}

// clean quotes a line, and shortens it.
func clean(line string) string {
	line = quote(strings.TrimRight(line, " \r\n"))
	if len(line) > maxLine {
		end := maxLine
		for !utf8.RuneStart(line[end]) {
			end--
		}
		line = fmt.Sprintf("%s... (%d bytes)", line[:end], len(line))
	}
	return line
}

// quote writes what cannot be printed as an escape sequence of Go.
func quote(line string) string {
	var b strings.Builder
	for len(line) > 0 {
		r, n := utf8.DecodeRuneInString(line)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, line[0])
		case r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		line = line[n:]
	}
	return b.String()
}
