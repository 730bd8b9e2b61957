package frames

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/operr"
)

// socket is a link to one other program over a UNIX socket that preserves frame
// boundaries. The first program listens, the second one connects. When one
// ends, the other waits for the next.
type socket struct {
	path string

	mu     sync.Mutex // guards the following fields
	ready  sync.Cond  // signalled when peer is set, or closed
	peer   *net.UnixConn
	listen *net.UnixListener
	closed bool
}

const socketKind = "unixpacket"

// OpenUnix opens a link through a socket at a path. It removes a socket on
// which no program listens any more. It returns EADDRINUSE if the path is not a
// socket.
func OpenUnix(path string) (Link, error) {
	s := &socket{path: path}
	s.ready.L = &s.mu
	return s, s.meet()
}

// meet connects to the other program, or listens for it. The caller does not
// hold s.mu.
func (s *socket) meet() error {
	const op = "open a network"
	addr := &net.UnixAddr{Name: s.path, Net: socketKind}
	for range 10 {
		c, err := net.DialUnix(socketKind, nil, addr)
		if err == nil {
			s.set(c, nil)
			return nil
		}
		l, err := unixsocket.Listen(socketKind, s.path)
		if err == nil {
			s.set(nil, l)
			go s.accept(l)
			return nil
		}
		if errors.Is(err, syscall.EEXIST) {
			return &operr.Error{Op: op, Errno: syscall.EADDRINUSE, Reason: s.path, Err: err}
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return &operr.Error{Op: op, Errno: syscall.EADDRNOTAVAIL, Reason: s.path, Err: err}
		}
		time.Sleep(10 * time.Millisecond) // the other program takes the path at this moment
	}
	return failure.New(op, syscall.EADDRINUSE, "%s: two programs use it already", s.path)
}

func (s *socket) set(peer *net.UnixConn, l *net.UnixListener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer, s.listen = peer, l
	if s.closed {
		s.drop()
	}
	s.ready.Broadcast()
}

// drop closes the connection and the listener. The caller holds s.mu.
func (s *socket) drop() {
	if s.peer != nil {
		s.peer.Close()
	}
	if s.listen != nil {
		s.listen.Close() // removes the path
	}
	s.peer, s.listen = nil, nil
}

// accept waits for the other program. Only one is served.
func (s *socket) accept(l *net.UnixListener) {
	c, err := l.AcceptUnix()
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listen == l {
		s.listen.Close()
		s.listen, s.peer = nil, c
	} else {
		c.Close()
	}
	s.ready.Broadcast()
}

// Send implements Link. Without a peer the frame is lost.
func (s *socket) Send(frame []byte) error {
	s.mu.Lock()
	peer, closed := s.peer, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return net.ErrClosed
	case peer == nil:
		return nil
	}
	conn, err := peer.SyscallConn()
	if err != nil {
		return nil
	}
	conn.Write(func(fd uintptr) bool {
		unix.SendmsgN(int(fd), frame, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) // a full socket loses frames
		return true
	})
	return nil
}

// Recv implements Link.
func (s *socket) Recv(b []byte) (int, error) {
	for {
		s.mu.Lock()
		for s.peer == nil && !s.closed {
			s.ready.Wait()
		}
		peer, closed := s.peer, s.closed
		s.mu.Unlock()
		if closed {
			return 0, net.ErrClosed
		}
		if n, err := peer.Read(b); err == nil && n > 0 {
			return n, nil
		}
		if err := s.lost(peer); err != nil {
			return 0, err
		}
	}
}

// lost waits for the next peer after one has ended.
func (s *socket) lost(peer *net.UnixConn) error {
	s.mu.Lock()
	if s.closed || s.peer != peer {
		s.mu.Unlock()
		return nil
	}
	peer.Close()
	s.peer = nil
	s.mu.Unlock()
	return s.meet()
}

// Close implements Link.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	s.drop()
	s.ready.Broadcast()
	return nil
}
