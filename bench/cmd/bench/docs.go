package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/bench/openssl"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

//go:embed benchmarks.md.tmpl
var page string

// shown are the rows that the page shows, in order; the reports have all.
var shown = []struct {
	group, operation, variant string
	size                      int
	title                     string
}{
	{"sig", "T10-DIF generate, copying", "", 512, "T10-DIF, protect 512-byte blocks while copying"},
	{"sig", "T10-DIF verify", "", 512, "T10-DIF, verify 512-byte blocks"},
	{"sig", "T10-DIF verify", "", 4096, "T10-DIF, verify 4096-byte blocks"},
	{"xts", "AES-XTS-256 encrypt", "", 512, "AES-XTS-256, encrypt units of 512 bytes"},
	{"xts", "AES-XTS-256 decrypt", "", 4096, "AES-XTS-256, decrypt units of 4096 bytes"},
	{"files", "protect, T10-DIF", "", 1 << 30, "protect a file"},
	{"wire", "WRITE", "", 1 << 20, "RDMA WRITE of 1 MiB"},
	{"wire", "WRITE", "T10-DIF on the wire", 1 << 20, "the same, T10-DIF on the wire"},
	{"run", "ib_write_bw", "", 1 << 16, "ib_write_bw, 64 KiB"},
	{"run", "ib_write_lat", "", 64, "ib_write_lat, 64 bytes"},
	{"run", "queue of 1 reads", "one run", 4096, "requests of 4 KiB, one at a time"},
	{"run", "queue of 32 reads", "one run", 4096, "requests of 4 KiB, 32 in flight"},
	{"wire", "memory of an idle queue pair", "10000 of them", 0, "memory of a queue pair"},
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

	Name string `json:"-"` // name of its file, without extension
}

// notWords are the parts of a processor's name that its file name omits.
var notWords = regexp.MustCompile(`(?i)\(R\)|\(TM\)|\bprocessor\b|\bCPU\b|\s*@.*GHz|, stepping \d+|[^a-z0-9]+`)

// fileName returns the name of a processor's files.
func fileName(m *bench.Machine) string {
	words := strings.Fields(notWords.ReplaceAllString(m.CPU, " "))
	return strings.ToLower(strings.Join(words, "-"))
}

// write stores a report under its processor's name in dir/benchmarks, replacing the
// previous one. It also writes the page of all processors.
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
	return render(dir)
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
		p := &processor{Name: strings.TrimSuffix(filepath.Base(name), ".json")}
		if err := json.Unmarshal(text, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, p)
	}
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(page)).Execute(&text, all); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), text.Bytes(), 0o666)
}

// Rows are the lines of the table: the rows of shown that were measured.
func (p *processor) Rows() string {
	var b strings.Builder
	for _, s := range shown {
		for i := range p.Results {
			r := &p.Results[i]
			if r.Group == s.group && r.Operation == s.operation && r.Variant == s.variant && r.Size == s.size && r.Error == "" {
				fmt.Fprintf(&b, "| %s | %s |\n", s.title, r.Cells())
			}
		}
	}
	return b.String()
}
