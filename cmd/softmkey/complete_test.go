package main

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestCompletion asks for completions as the shell does.
func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "control")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	writeFile(t, filepath.Join(dir, "contents"), nil, 0o666)
	for _, tt := range []struct {
		line string
		want []string
	}{
		{"verify --sig t10dif", []string{"t10dif", "t10dif:4096"}},
		{"run --fault lo", []string{"loss=1%"}},
		{"run --fault loss=1%,re", []string{"loss=1%,reorder=1%"}},
		{"run --trace-kind object,st", []string{"object,state"}},
		{"run --device ", []string{"auto", "127.0.0.1"}},
		{"target --device 127", []string{"127.0.0.1"}},
		{"copy --from 127", []string{"127.0.0.1"}},
		{"target --damage wire:g", []string{"wire:guard@"}},
		{"control " + dir + "/cont", []string{socket}},
		{"control " + socket + " ", []string{"port", "qp", "loss"}},
		{"control " + socket + " port d", []string{"down"}},
		{"control " + socket + " qp 7 ", []string{"error"}},
		{"officer list " + dir + "/", []string{socket}},
		{"officer add-kek " + dir + "/", []string{socket}},
	} {
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(new(strings.Builder))
		root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(tt.line, " ")...))
		if err := root.Execute(); err != nil {
			t.Errorf("%s: %v", tt.line, err)
		}
		got := strings.Split(out.String(), "\n")
		for _, word := range tt.want {
			if !slices.Contains(got, word) {
				t.Errorf("%s: %q is not among %q", tt.line, word, got)
			}
		}
		if strings.Contains(out.String(), "contents") {
			t.Errorf("%s: a file that is no socket is among %q", tt.line, got)
		}
	}
}

// TestCompletionOfValues: a flag whose value is one of a few words offers them.
func TestCompletionOfValues(t *testing.T) {
	words := []string{"SIG", "FAULTS", "MODE", "FORMAT", "ORDER", "PROFILE", "PICTURE", "DAMAGE"}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			word, _ := pflag.UnquoteUsage(f)
			_, one := f.Value.(*deviceFlag)
			_, many := f.Value.(*addrList)
			if one || many || slices.Contains(words, word) || strings.Contains(word, "|") {
				if _, ok := c.GetFlagCompletionFunc(f.Name); !ok {
					t.Errorf("%s --%s: the shell has no completions", c.CommandPath(), f.Name)
				}
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(newRoot())
}
