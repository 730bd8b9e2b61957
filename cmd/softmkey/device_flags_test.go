//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	st, err := os.Stat(f.trace)
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %#o, want 0600", mode)
	}
}
