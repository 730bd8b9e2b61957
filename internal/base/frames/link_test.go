//go:build linux

package frames

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// sendUntil sends a frame until the other end has received it: the other end may
// connect later. The frame of the call before, which may have been sent several
// times, can still arrive before it. No other frame may.
func sendUntil(t *testing.T, from, to Link, before, frame string) {
	t.Helper()
	got := make(chan error)
	go func() {
		b := make([]byte, MaxFrame)
		for {
			n, err := to.Recv(b)
			s := string(b[:n])
			if err == nil && s == before {
				continue
			}
			if err == nil && s != frame {
				err = fmt.Errorf("received %q, sent %q", s, frame)
			}
			got <- err
			return
		}
	}()
	for {
		if err := from.Send([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestUnixLinks connects two links at one path, in either order, and again after one
// was closed.
func TestUnixLinks(t *testing.T) {
	path := "unix:" + filepath.Join(t.TempDir(), "net")
	a, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Send([]byte("lost")); err != nil {
		t.Errorf("sending without a peer: %v", err)
	}
	before := ""
	for round := range 3 {
		b, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		frame := fmt.Sprintf("to a, round %d", round)
		sendUntil(t, b, a, before, frame)
		before = frame
		go func() {
			b.Close()
			b.Send([]byte("x"))
		}()
		// Link a detects that b was closed while it waits for a frame of the
		// next link.
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Recv(make([]byte, 10)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receiving after Close: %v", err)
	}
	if err := a.Send(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sending after Close: %v", err)
	}
}

func TestBadLinkNames(t *testing.T) {
	for _, name := range []string{"", "unix:", "a name that is too long for a device"} {
		if l, err := Open(name); err == nil {
			l.Close()
			t.Errorf("%q: no error", name)
		} else if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
