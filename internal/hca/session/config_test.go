//go:build linux && (amd64 || arm64)

package session

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTraceIsPrivate opens a trace's file under a umask that allows everything. Only the owner can read it.
func TestTraceIsPrivate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	trace := Trace{File: filepath.Join(t.TempDir(), "trace")}
	w, err := trace.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	st, err := os.Stat(trace.File)
	if err != nil {
		t.Fatal(err)
	}
	if mode := st.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %#o, want 0600", mode)
	}
}
