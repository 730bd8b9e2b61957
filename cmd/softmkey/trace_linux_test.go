package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTraceIsPrivate opens a trace's file under a umask that allows everything. Only the owner can read it.
func TestTraceIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	name := filepath.Join(t.TempDir(), "trace")
	f := deviceFlags{trace: name, traceFormat: "text"}
	traces, err := f.traces()
	if err != nil {
		t.Fatal(err)
	}
	w, err := traces[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %#o, want 0600", mode)
	}
}
