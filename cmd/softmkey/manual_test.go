package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

//go:generate go test -run TestManual -update .

var update = flag.Bool("update", false, "write the manual pages in docs/man")

// manualDate is the date at the end of the pages.
var manualDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// TestManual compares the manual pages with the help texts from which they are generated.
func TestManual(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "man")
	pages := map[string][]byte{}
	addPages(t, pages, newRoot())

	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, page := range pages {
			if err := os.WriteFile(filepath.Join(dir, name), page, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pages[e.Name()] == nil {
			t.Errorf("%s is the page of no command", e.Name())
		}
	}
	for name, want := range pages {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date (%v): run go generate ./cmd/softmkey", name, err)
		}
	}
}

// addPages adds the pages of a command and its subcommands.
func addPages(t *testing.T, pages map[string][]byte, c *cobra.Command) {
	c.DisableAutoGenTag = true
	// The generator prints a flag's default where manual pages print the kind of
	// value.
	c.InitDefaultHelpFlag()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if kind := f.Value.Type(); kind != "bool" && f.DefValue != "" {
			f.Usage += " (default " + f.DefValue + ")"
		}
		f.DefValue = f.Value.Type()
	})
	var page bytes.Buffer
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	header := doc.GenManHeader{
		Title:   strings.ToUpper(name),
		Section: "1",
		Date:    &manualDate,
		Source:  "softmkey",
		Manual:  "softmkey manual",
	}
	if err := doc.GenMan(c, &header, &page); err != nil {
		t.Fatal(err)
	}
	pages[name+".1"] = bytes.ReplaceAll(page.Bytes(), []byte("[=bool]"), nil)
	for _, sub := range c.Commands() {
		if sub.Name() != "help" {
			addPages(t, pages, sub)
		}
	}
}

// TestHelp checks that the help text of every command has the parts that a user expects.
func TestHelp(t *testing.T) {
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Long == "" || c.Short == "" {
			t.Errorf("%s has no help text", path)
		}
		if c.Example == "" && c.HasLocalFlags() {
			t.Errorf("%s has no examples", path)
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: the example %q is not indented", path, line)
			}
		}
		for line := range strings.Lines(c.Long) {
			if len(line) > 92 {
				t.Errorf("%s: the line %q is too long", path, line)
			}
		}
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
