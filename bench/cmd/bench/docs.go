package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/bench/openssl"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

//go:embed benchmarks.md.tmpl
var page string

// headings are the titles of the groups' tables. about explains the groups, once for all
// processors.
var headings = map[string]string{
	"sig": "Signatures", "xts": "AES-XTS", "mkey": "Memory keys", "files": "Files", "wire": "The wire",
	"run": "Programs under softmkey run",
}

// versions returns the names and versions of the peers.
func versions() []string {
	v := []string{"ISA-L " + isal.Version(), openssl.Version()}
	for _, command := range [][]string{{"cp", "--version"}, {"iperf3", "--version"}, {"ib_write_bw", "--version"}} {
		if out, err := exec.Command(command[0], command[1:]...).Output(); err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			v = append(v, line)
		}
	}
	return v
}

// processor is a stored report: there is one file for each processor.
type processor struct {
	bench.Report
	Note string `json:"note,omitempty"` // conditions of the run

	name string // name of its files, without extension
	more string // text that somebody wrote about the processor
}

// notWords are the parts of a processor's name that its file name omits.
var notWords = regexp.MustCompile(`(?i)\(R\)|\(TM\)|\bprocessor\b|\bCPU\b|\s*@.*GHz|, stepping \d+|[^a-z0-9]+`)

// fileName returns the name of a processor's files.
func fileName(m *bench.Machine) string {
	words := strings.Fields(notWords.ReplaceAllString(m.CPU, " "))
	return strings.ToLower(strings.Join(words, "-"))
}

// write stores a report under its processor's name in dir/benchmarks, replacing the
// previous one. It also writes the plot and the page of all processors.
func write(dir string, p *processor) error {
	base := filepath.Join(dir, "benchmarks", fileName(&p.Machine))
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(text, '\n'), 0o666); err != nil {
		return err
	}
	const caption = "Times the speed of the peer. Red marks are targets, yellow bars miss one."
	if err := create(base+".svg", func(f *os.File) error { return p.Plot(f, caption) }); err != nil {
		return err
	}
	return render(dir)
}

// merge adds the rows of the stored report of p's processor that p lacks, in their order. p
// keeps its own date, compiler and note: the note says which rows are of that run.
func merge(dir string, p *processor) error {
	text, err := os.ReadFile(filepath.Join(dir, "benchmarks", fileName(&p.Machine)+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var stored processor
	if err := json.Unmarshal(text, &stored); err != nil {
		return fmt.Errorf("stored report of this processor: %w", err)
	}
	measured := p.Results
	p.Results = stored.Results
	for _, r := range measured {
		same := func(s bench.Result) bool {
			return s.Group == r.Group && s.Operation == r.Operation && s.Variant == r.Variant && s.Size == r.Size
		}
		if i := slices.IndexFunc(p.Results, same); i >= 0 {
			p.Results[i] = r
		} else {
			p.Results = append(p.Results, r)
		}
	}
	return nil
}

// render writes dir/benchmarks.md from the reports in dir/benchmarks.
func render(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "benchmarks", "*.json"))
	if err != nil {
		return err
	}
	var all []*processor
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		p := &processor{name: strings.TrimSuffix(filepath.Base(name), ".json")}
		if err := json.Unmarshal(text, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		// Text that somebody wrote about the processor is in a file of its own, so that no run
		// replaces it.
		more, err := os.ReadFile(filepath.Join(dir, "benchmarks", p.name+".md"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		p.more = string(more)
		all = append(all, p)
	}
	return create(filepath.Join(dir, "benchmarks.md"), func(f *os.File) error {
		return template.Must(template.New("").Parse(page)).Execute(f, all)
	})
}

// Name is the name of the processor's files, without extension.
func (p *processor) Name() string { return p.name }

// More is the text about the processor that no run replaces; it may be empty.
func (p *processor) More() string { return p.more }

// Tables are the tables of all groups.
func (p *processor) Tables() (string, error) {
	var b strings.Builder
	err := p.Markdown(&b, headings)
	return strings.ReplaceAll(b.String(), "\n## ", "\n### "), err
}

// Summary counts the targets.
func (p *processor) Summary() string {
	targets, reached := p.Count()
	return fmt.Sprintf("%d of %d rows with targets reach all of theirs", reached, targets)
}

// create creates a file and writes it with fill.
func create(name string, fill func(*os.File) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = fill(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
