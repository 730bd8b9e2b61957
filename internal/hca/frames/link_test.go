//go:build linux

package frames

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
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
		fatal.If(t, from.Send([]byte(frame)))
		select {
		case err := <-got:
			fatal.If(t, err)
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
	fatal.If(t, err)
	defer a.Close()
	if err := a.Send([]byte("lost")); err != nil {
		t.Errorf("sending without a peer: %v", err)
	}
	before := ""
	for round := range 3 {
		b, err := Open(path)
		fatal.If(t, err)
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

// TestUnixLinkReturns takes the path away from a link: another file has its name, its folder is
// missing, or its socket was removed while it listened. The link is connected again when the path is free.
func TestUnixLinkReturns(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir, path string, b Link) (mend func()){
		"another file has the name": func(t *testing.T, dir, path string, b Link) func() {
			fatal.If(t, os.WriteFile(path, nil, 0o600))
			b.Close()
			return func() { os.Remove(path) }
		},
		"the folder is missing": func(t *testing.T, dir, path string, b Link) func() {
			fatal.If(t, os.Rename(dir, dir+".away"))
			b.Close()
			return func() { os.Rename(dir+".away", dir) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			fatal.If(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "net")
			a, b := openUnix(t, path), openUnix(t, path)
			sendUntil(t, b, a, "", "first")
			mend := spoil(t, dir, path, b)
			buf := make([]byte, MaxFrame)
			for { // "first" may have been sent several times
				n, err := a.Recv(buf)
				if err == nil && string(buf[:n]) == "first" {
					continue
				}
				if err == nil || errors.Is(err, net.ErrClosed) {
					t.Fatalf("the link is not down: %q, %v", buf[:n], err)
				}
				break
			}
			mend()
			meet(t, a, path)
		})
	}
	t.Run("its socket was removed", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "net")
		a := openUnix(t, path)
		fatal.If(t, os.Remove(path))
		meet(t, a, path)
	})
}

// openUnix opens a link that the test closes.
func openUnix(t *testing.T, path string) Link {
	t.Helper()
	l, err := OpenUnix(path)
	fatal.If(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// meet sends a frame from a new link at path to a. The two may first have to find each other.
func meet(t *testing.T, a Link, path string) {
	t.Helper()
	got := make(chan error, 1)
	go func() {
		_, err := a.Recv(make([]byte, MaxFrame))
		got <- err
	}()
	b := openUnix(t, path)
	go func() {
		for { // if b has come first, it listens and takes a, or listens again
			if _, err := b.Recv(make([]byte, MaxFrame)); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
	for {
		b.Send([]byte("again"))
		select {
		case err := <-got:
			fatal.If(t, err)
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// TestEmptyFrame sends a message of 0 bytes to a link. It is no frame, and not the end of the peer.
func TestEmptyFrame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net")
	a := openUnix(t, path)
	c, err := net.DialUnix(socketKind, nil, &net.UnixAddr{Name: path, Net: socketKind})
	fatal.If(t, err)
	defer c.Close()
	for _, message := range []string{"", "frame"} {
		if _, err := c.Write([]byte(message)); err != nil {
			t.Fatalf("message %q: %v", message, err)
		}
	}
	b := make([]byte, MaxFrame)
	if n, err := a.Recv(b); err != nil || string(b[:n]) != "frame" {
		t.Errorf("received %q, %v", b[:n], err)
	}
	if err := a.Send(nil); err != nil {
		t.Error(err)
	}
	if err := a.Send([]byte("answer")); err != nil {
		t.Error(err)
	}
	if n, err := c.Read(b); err != nil || string(b[:n]) != "answer" {
		t.Errorf("received %q, %v", b[:n], err)
	}
}
