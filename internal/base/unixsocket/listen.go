// Package unixsocket listens at UNIX sockets.
//
// A program that is killed leaves its socket at the path, and the next program cannot listen there.
// [Listen] removes such a socket first. If several programs call Listen at the same time, one of them
// listens, and the others are told that it does. A [Listener] removes only its own socket when it closes:
// another program may have replaced the file at the path.
package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Listener listens at a path.
type Listener struct {
	*net.UnixListener
	path  string
	file  os.FileInfo // of the socket at the path
	close sync.Once
}

// Named reports whether the socket is still the file at the path, so that clients reach it.
func (l *Listener) Named() bool {
	st, err := os.Lstat(l.path)
	return err == nil && os.SameFile(st, l.file)
}

// Close closes the socket, and removes it from the path if it is still there. It returns net.ErrClosed if
// the listener was closed before.
func (l *Listener) Close() error {
	err := error(net.ErrClosed)
	l.close.Do(func() {
		defer lock(filepath.Dir(l.path))()
		if l.Named() {
			os.Remove(l.path)
		}
		err = l.UnixListener.Close()
	})
	return err
}

// open listens at path. The folder is locked.
func open(network, path string) (*Listener, error) {
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	st, err := os.Lstat(path)
	if err != nil {
		l.Close()
		return nil, err
	}
	return &Listener{UnixListener: l, path: path, file: st}, nil
}

// Listen listens at path. The network is "unix" or "unixpacket". If there is a socket at path on which
// no program listens, Listen replaces it. EADDRINUSE: another program listens there. EEXIST: the file at
// path is not a socket, or is a socket of another network or of another user. EINVAL: the path begins with @, which the
// system takes for an abstract name, or is too long.
func Listen(network, path string) (*Listener, error) {
	const op = "listen"
	if strings.HasPrefix(path, "@") {
		return nil, failure.New(op, syscall.EINVAL, "%s is an abstract name, without a file and its mode: every user could listen or connect there. Name a file: ./%[1]s, for example", path)
	}
	// A socket refuses connections between bind and listen, like one that was left behind. The lock
	// keeps a second program from removing it in this moment.
	defer lock(filepath.Dir(path))()
	l, err := open(network, path)
	if errors.Is(err, syscall.EINVAL) {
		return nil, failure.New(op, syscall.EINVAL, "%s: the name of a socket has at most 107 bytes, this one has %d", path, len(path))
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket == 0 {
		return nil, failure.New(op, syscall.EEXIST, "%s is not a socket", path)
	}
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	switch {
	case err == nil:
		c.Close()
		fallthrough
	case errors.Is(err, syscall.EAGAIN): // its backlog is full
		return nil, failure.New(op, syscall.EADDRINUSE, "another program listens at %s", path)
	case errors.Is(err, syscall.ENOENT): // it was closed in this moment
	case !errors.Is(err, syscall.ECONNREFUSED):
		return nil, failure.New(op, syscall.EEXIST, "%s is a socket of another kind, or of another user: %v", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return open(network, path)
}
