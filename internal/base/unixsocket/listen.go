// Package unixsocket listens at UNIX sockets.
//
// A program that is killed leaves its socket behind, and the next one cannot listen at the path.
// [Listen] replaces such a socket, also when several programs start at the same time.
package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Listen listens at path. The network is "unix" or "unixpacket". A socket on which nobody listens
// any more is replaced. EADDRINUSE: another program listens there. EEXIST: the file is not such a
// socket.
func Listen(network, path string) (*net.UnixListener, error) {
	const op = "listen"
	// A socket refuses connections between bind and listen, like one that was left behind. The lock
	// keeps a second program from removing it in this moment.
	defer lock(filepath.Dir(path))()
	addr := &net.UnixAddr{Name: path, Net: network}
	l, err := net.ListenUnix(network, addr)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket == 0 {
		return nil, failure.New(op, syscall.EEXIST, "%s is not a socket", path)
	}
	c, err := net.DialUnix(network, nil, addr)
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
	return net.ListenUnix(network, addr)
}
