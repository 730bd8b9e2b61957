//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// TestFlagsOfBothDoors compares the flags of run and pci. Pci has every flag of run, with the same text, except for
// those of the table, which say nothing about an adapter of a guest.
func TestFlagsOfBothDoors(t *testing.T) {
	absent := map[string]string{
		"device":        "the guest gives its interfaces their addresses",
		"name":          "the guest's kernel names its devices",
		"strict-memory": "it watches system calls of programs; a guest's kernel does not make them here",
		"officer":       "--control takes the commands of 'softmkey officer', too",
		"summary":       "it is printed when the program has ended; the command serves one guest after another",
		"view":          "it shows queue pairs of programs; the trace of a guest has its objects",
		"metrics":       "it counts per device of programs; the guest has the counters (ethtool -S, hw_counters)",
		"wire":          "packets of a guest are frames of the network always",
		"no-assist":     "no library is loaded into a guest",
	}
	otherText := map[string]string{"control": "only some faults exist for a guest"}
	otherDefault := map[string]string{"signature-errors": "adapter"} // Linux prints the values as those of an adapter
	guest := newPCI().Flags()
	newRun().Flags().VisitAll(func(of *pflag.Flag) {
		f, reason := guest.Lookup(of.Name), absent[of.Name]
		delete(absent, of.Name)
		want := of.DefValue
		if d, ok := otherDefault[of.Name]; ok {
			want = d
		}
		switch {
		case (f == nil) != (reason != ""):
			t.Errorf("--%s: pci has it: %t; the reason for its absence: %q", of.Name, f != nil, reason)
		case f == nil:
		case f.DefValue != want || f.Value.Type() != of.Value.Type() || f.Usage != of.Usage && otherText[of.Name] == "":
			t.Errorf("--%s: default %q, type %s, %q; want %q, %s, %q", of.Name, f.DefValue, f.Value.Type(), f.Usage, want, of.Value.Type(), of.Usage)
		}
	})
	if len(absent) > 0 {
		t.Errorf("run does not have the flags %v", absent)
	}
}

// TestAdapterOptions gives each flag of the adapter, and finds it in the adapter's options.
func TestAdapterOptions(t *testing.T) {
	for _, test := range []struct {
		order string // the command's default
		args  []string
		want  adapter.Options
	}{
		{"manual", nil, adapter.Options{}},
		{"adapter", nil, adapter.Options{AdapterReports: true}},
		{"manual", []string{"--signature-errors=adapter"}, adapter.Options{AdapterReports: true}},
		{"adapter", []string{"--signature-errors=manual"}, adapter.Options{}},
		{"manual", []string{"--strict"}, adapter.Options{Strict: true}},
		{"manual", []string{"--crypto-profile=single-block"}, adapter.Options{SingleBlock: true}},
	} {
		var f deviceFlags
		c := &cobra.Command{Use: "command"}
		f.bind(c, test.order)
		fatal.If(t, c.ParseFlags(test.args))
		got, err := f.options()
		if err != nil || got.KeyStore == nil {
			t.Fatalf("%q: %v", test.args, err)
		}
		if got.KeyStore = nil; got != test.want {
			t.Errorf("%s, %q: %+v, want %+v", test.order, test.args, got, test.want)
		}
	}
	for _, arg := range []string{"--signature-errors=drivers", "--crypto-profile=both"} {
		var f deviceFlags
		c := &cobra.Command{Use: "command"}
		f.bind(c, "manual")
		_, value, _ := strings.Cut(arg, "=")
		fatal.If(t, c.ParseFlags([]string{arg}))
		if _, err := f.options(); err == nil || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// TestTraceIsPrivate opens a trace's file under a umask that allows everything. Only the owner can read
// it.
func TestTraceIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	f := deviceFlags{trace: filepath.Join(t.TempDir(), "trace"), traceFormat: "text"}
	list, err := f.traces()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d traces, %v", len(list), err)
	}
	w, err := list[0].Open()
	fatal.If(t, err)
	defer w.Close()
	st, err := os.Stat(f.trace)
	fatal.If(t, err)
	if mode := st.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %#o, want 0600", mode)
	}
}
