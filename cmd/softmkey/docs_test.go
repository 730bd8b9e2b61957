//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// shell runs a line in a folder, with the program in the PATH, and returns what it prints.
func shell(t *testing.T, dir, line string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", line)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(builtProgram(t))+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	return string(out), err
}

// script writes an executable shell script.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755)
}

// TestREADME runs the commands of the README's first screen. Each must print the lines that
// stand below it there.
func TestREADME(t *testing.T) {
	page := readFile(t, "../../README.md")
	first, _, _ := strings.Cut(string(page), "\n## ")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "LICENSE"), readFile(t, "../../LICENSE"), 0o666)
	script(t, dir, "program", "exit 0")
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(first, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(part, "\n")
			if !strings.HasPrefix(line, "softmkey ") {
				continue // make
			}
			commands++
			// A command that finds bad data fails; what it prints says so.
			out, err := shell(t, dir, line)
			if want = strings.TrimSpace(want); !strings.Contains(out, want) || err != nil && want == "" {
				t.Errorf("%s: %v: %q, want %q", line, err, out, want)
			}
		}
	}
	if commands < 4 {
		t.Errorf("%d commands", commands)
	}
}

// TestOutcomes: the last line of each command with --json, here of one that fails, says which command it is of and
// whether that is complete. Those of commands that succeed are in the scripts.
func TestOutcomes(t *testing.T) {
	found := 0
	for _, c := range newRoot().Commands() {
		if c.Flags().Lookup("json") == nil {
			continue
		}
		found++
		out, err := exec.CommandContext(t.Context(), builtProgram(t), c.Name(), "--json", "--no-such-flag").Output()
		var o struct {
			Command  string
			Complete *bool
		}
		if json.Unmarshal(out, &o) != nil || o.Command != c.Name() || o.Complete == nil || *o.Complete || err == nil {
			t.Errorf("%s: %s, %v", c.Name(), out, err)
		}
	}
	if found < 10 {
		t.Errorf("%d commands with --json", found)
	}
}

// TestNeedsGo: without Go, and with one that is too old, make says in one line what is missing and where it is.
func TestNeedsGo(t *testing.T) {
	for have, want := range map[string]string{"": "there is no go in the PATH", "1.19.8": "/go is Go 1.19: ", "1.21.0": "", "1.26.1": "", "2.0": ""} {
		bin := t.TempDir()
		if have != "" {
			script(t, bin, "go", "echo go version go"+have+" linux/amd64")
		}
		sed, err := exec.LookPath("sed")
		fatal.If(t, err)
		fatal.If(t, os.Symlink(sed, filepath.Join(bin, "sed")))
		c := exec.CommandContext(t.Context(), "/bin/sh", "../../scripts/needgo.sh", "../../go.mod")
		c.Env = []string{"PATH=" + bin}
		out, err := c.CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) || want != "" && (strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "https://go.dev/dl")) {
			t.Errorf("Go %s: %v: %s", have, err, out)
		}
	}
}

// TestExamplesOfProtect runs the examples of protect's help. Data of whole sectors must be protected to its end, which
// a warning would deny, and strip's examples must give the files back.
func TestExamplesOfProtect(t *testing.T) {
	dir := t.TempDir()
	files := map[string][]byte{"disk.img": nil, "lba2048.img": nil, "photos/1": nil, "photos/2": nil}
	fatal.If(t, os.Mkdir(filepath.Join(dir, "photos"), 0o777))
	for name := range files {
		files[name] = bytes.Repeat([]byte(name[len(name)-1:]), 48<<10)
		writeFile(t, filepath.Join(dir, name), files[name], 0o666)
	}
	pipes := 0
	for line := range strings.Lines(newProtect().Example) {
		out, err := shell(t, dir, strings.Replace(line, "tar c", "tar -b 1 -c", 1)) // an archive that is no multiple of 4096 bytes
		if out != "" || err != nil {
			t.Errorf("%s%v: %s", line, err, out)
		}
	}
	for line := range strings.Lines(newStrip().Example) {
		if !strings.Contains(line, "| tar x") {
			continue
		}
		pipes++
		fatal.If(t, os.RemoveAll(filepath.Join(dir, "photos")))
		if out, err := shell(t, dir, line); out != "" || err != nil {
			t.Errorf("%s%v: %s", line, err, out)
		}
	}
	for name, want := range files {
		if !bytes.Equal(readFile(t, filepath.Join(dir, name)), want) {
			t.Errorf("%s has changed", name)
		}
	}
	if pipes == 0 {
		t.Error("no example strips an archive")
	}
}

// TestDocumentedServers runs each documented line that starts a server and a client in one run.
// It must fail if either of them fails, or a job of CI would succeed whatever happens.
func TestDocumentedServers(t *testing.T) {
	lines := map[string]bool{}
	for _, name := range []string{"run.md", "clusters.md"} {
		page := readFile(t, filepath.Join("../../docs", name))
		for _, line := range regexp.MustCompile(`softmkey run [^\n]*sh -c '[^'\n]*\./server[^'\n]*'`).FindAllString(string(page), -1) {
			lines[line] = true
		}
	}
	if len(lines) == 0 {
		t.Fatal("no line is documented")
	}
	for line := range lines {
		for _, ends := range [][2]string{{"exit 0", "exit 0"}, {"exit 0", "exit 3"}, {"exit 3", "exit 0"}} {
			dir := t.TempDir()
			script(t, dir, "server", ends[0])
			script(t, dir, "client", ends[1])
			out, err := shell(t, dir, line)
			if good := ends == [2]string{"exit 0", "exit 0"}; (err == nil) != good {
				t.Errorf("%s, server %s, client %s: %v: %s", line, ends[0], ends[1], err, out)
			}
		}
	}
}

// TestConformanceNames looks for every test that docs/conformance.md names.
func TestConformanceNames(t *testing.T) {
	page := readFile(t, "../../docs/conformance.md")
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && len(name) > 2 && name[0] == '.' {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(file), -1) {
			known[m[1]] = true
		}
		return err
	})
	fatal.If(t, err)
	names := regexp.MustCompile("`((?:Test|Example|Fuzz)\\w*)").FindAllStringSubmatch(string(page), -1)
	if len(names) < 100 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, m := range names {
		if !known[m[1]] {
			t.Errorf("docs/conformance.md names %s, and no package has it", m[1])
		}
	}
}
