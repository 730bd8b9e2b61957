// Package unixsocket listens at UNIX sockets.
//
// A program that is killed leaves its socket at the path, and the next program cannot listen there.
// [Listen] removes such a socket first. If several programs call Listen at the same time, one of them
// listens, and the others are told that it does.
package unixsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Listen listens at path. The network is "unix" or "unixpacket". If there is a socket at path on which
// no program listens, Listen replaces it. EADDRINUSE: another program listens there. EEXIST: the file at
// path is not a socket, or is a socket of another network or of another user.
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
