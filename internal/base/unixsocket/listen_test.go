//go:build linux

package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// TestListenTogether starts many servers at the path of a socket that was left behind, and without
// one. One of them listens, and clients reach it.
func TestListenTogether(t *testing.T) {
	for round := range 50 {
		path := filepath.Join(t.TempDir(), "s")
		if round%2 == 0 {
			leave(t, path)
		}
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			wins  []*Listener
			begin = make(chan struct{})
		)
		for range 8 {
			wg.Go(func() {
				<-begin
				l, err := Listen("unix", path)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					wins = append(wins, l)
				} else if !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("%v, want EADDRINUSE", err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if len(wins) != 1 {
			t.Errorf("%d servers listen at one path, want 1", len(wins))
		}
		if c, err := net.Dial("unix", path); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		for _, l := range wins {
			l.Close()
		}
	}
}

// leave makes the socket of a program that was killed.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	fatal.If(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
}

// TestOtherFiles listens where there is something else.
func TestOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	fatal.If(t, os.WriteFile(file, []byte("x"), 0o600))
	if _, err := Listen("unix", file); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a file: %v, want EEXIST", err)
	}
	if _, err := Listen("unix", "@name"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an abstract name: %v, want EINVAL", err)
	}
	packets := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unixpacket", packets)
	fatal.If(t, err)
	defer l.Close()
	if _, err := Listen("unix", packets); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a socket of another kind: %v, want EEXIST", err)
	}
	if _, err := Listen("unix", filepath.Join(file, "s")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file for a folder: %v, want ENOTDIR", err)
	}
}

// TestCloseOfReplaced replaces the socket at the path by another file. Closing the listener leaves that
// file alone.
func TestCloseOfReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen("unix", path)
	fatal.If(t, err)
	if !l.Named() {
		t.Error("the socket is not at its path")
	}
	fatal.If(t, os.Remove(path))
	other, err := Listen("unix", path)
	fatal.If(t, err)
	if l.Named() {
		t.Error("the socket of another listener is taken for this one's")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other listener's socket: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end of both: %v", err)
	}
	if err := other.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
}
