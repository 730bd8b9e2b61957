package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

//go:generate go test -run ^(TestManual|TestReasons)$ -update .

var update = flag.Bool("update", false, "write the manual pages in docs/man, docs/reasons.txt, and the transcripts in testdata/hardware")

// manualDate is the date at the end of the pages.
var manualDate = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

var valueWord = regexp.MustCompile(`(?m)="([^" ]*)"(\]?)$`)

// typeOfGo matches what pflag calls a value that has no other name.
var typeOfGo = regexp.MustCompile(`^(bool|bytes|duration|float|ip|strings?|time|u?int)|Array|Slice`)

// TestManual compares the manual pages with the help texts from which they are generated.
func TestManual(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "man")
	pages := map[string][]byte{}
	addPages(t, pages, newRoot())

	if *update {
		fatal.If(t, os.RemoveAll(dir))
		fatal.If(t, os.MkdirAll(dir, 0o777))
		for name, page := range pages {
			writeFile(t, filepath.Join(dir, name), page, 0o666)
		}
	}
	entries, err := os.ReadDir(dir)
	fatal.If(t, err)
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
	// The generator prints a flag's default value where manual pages have a word for the
	// kind of value. So the default is replaced by that word.
	c.InitDefaultHelpFlag()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		kind := f.Value.Type()
		if kind != "bool" && f.DefValue != "" && f.DefValue != "[]" {
			f.Usage += " (default " + f.DefValue + ")"
		}
		f.DefValue = kind
		if word, _ := pflag.UnquoteUsage(f); kind != "bool" && word != "" {
			f.DefValue = word // the one that the usage has in backquotes
		}
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
	fatal.If(t, doc.GenMan(c, &header, &page))
	text := strings.ReplaceAll(page.String(), "[=bool]", "")
	text = valueWord.ReplaceAllString(text, "=$1$2") // the generator puts the values of some types into quotes
	text = strings.Replace(text, ".SH EXAMPLE\n", ".SH EXAMPLES\n", 1)
	if at := strings.Index(text, "\n.SH SEE ALSO"); at >= 0 {
		text = text[:at] + manualSections(c) + text[at:]
	}
	pages[name+".1"] = []byte(text)
	for _, sub := range c.Commands() {
		if sub.Name() != "help" {
			addPages(t, pages, sub)
		}
	}
}

// manualSections returns the sections EXIT STATUS, ENVIRONMENT and FILES of a command's page.
func manualSections(c *cobra.Command) string {
	var b strings.Builder
	section := func(name string, items ...[2]string) {
		fmt.Fprintf(&b, "\n.SH %s\n", name)
		for _, i := range items {
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP\n%s\n", i[0], i[1])
		}
	}
	status := [][2]string{
		{"0", "success"},
		{"1", "a bad signature was found"},
		{"2", "an error of usage, configuration, input or output"},
		{"128 + number", "a signal with this number ended the command"},
	}
	environment := [][2]string{{"SOFTMKEY_CPU", "the instruction set that is used, as \\fBsoftmkey version\\fP names it (default: the largest that the CPU has)"}}
	files := [][2]string{{".NAME.softmkey-...", "an incomplete output file NAME, if the file system does not support files without a name; only a command that is killed leaves it behind"}}
	switch c.Name() {
	case "run":
		status = [][2]string{
			{"that of PROGRAM", "PROGRAM ended"},
			{"128 + number", "a signal with this number ended PROGRAM"},
			{"127", "PROGRAM was not found"},
			{"126", "PROGRAM cannot be executed"},
			{"2", "softmkey itself could not start it, or could not write the trace, the summary or the recording"},
		}
		environment = append(environment,
			[2]string{"SOFTMKEY_NO_LIBRARY_CHECK", "if it is set, the system need not have libibverbs' mlx5 driver, for a PROGRAM that brings its own"},
			[2]string{"SOFTMKEY_LIBRARY", "the path of libsoftmkey-run.so, if it is neither beside softmkey nor in ../lib/softmkey"},
			[2]string{"PATH", "folders in which PROGRAM is searched"})
		files = [][2]string{
			{"/etc/libibverbs.d", "the list of libibverbs' drivers, which must have that of mlx5"},
			{"/dev/infiniband, /sys/class/infiniband", "softmkey makes what PROGRAM sees there; the host's own files are not changed"},
			{"/proc/PID/mem", "the memory of PROGRAM"},
		}
	case "draw":
		status = append(status, [2]string{"that of PROGRAM", "PROGRAM failed; the picture was made nevertheless"},
			[2]string{"126, 127", "PROGRAM was not started, as with softmkey run"})
		files = append(files, [2]string{"docs/trace.schema.json", "the format of the traces that are read"})
	}
	section("EXIT STATUS", status...)
	section("ENVIRONMENT", environment...)
	section("FILES", files...)
	return b.String()
}

// TestManualSections checks that every page has the sections that a reader of manual pages looks
// for, and that ENVIRONMENT names each variable that the programs read.
func TestManualSections(t *testing.T) {
	pages := map[string][]byte{}
	addPages(t, pages, newRoot())
	for name, page := range pages {
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"} {
			if section == "OPTIONS" && (name == "softmkey-sig.1" || name == "softmkey-json.1") {
				continue // a help topic, not a command
			}
			if !bytes.Contains(page, []byte("\n.SH "+section+"\n")) {
				t.Errorf("%s has no section %s", name, section)
			}
		}
	}
	for _, variable := range []string{"SOFTMKEY_CPU", "SOFTMKEY_NO_LIBRARY_CHECK", "SOFTMKEY_LIBRARY", "PATH"} {
		if !bytes.Contains(pages["softmkey-run.1"], []byte(variable)) {
			t.Errorf("softmkey-run.1 does not name %s", variable)
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
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if word, _ := pflag.UnquoteUsage(f); typeOfGo.MatchString(word) {
				t.Errorf("%s: the value of --%s is named %q: users do not know types of Go", path, f.Name, word)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
