package frames

import (
	"errors"
	"io"
	"net"
	"os"
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
// ends, the other waits for the next. It goes on trying while that is impossible,
// for example because the folder is missing or the path is taken.
type socket struct {
	path string

	mu     sync.Mutex // guards the following fields
	ready  sync.Cond  // signalled when peer is set, or closed
	peer   *net.UnixConn
	listen *unixsocket.Listener
	closed bool
	end    chan struct{} // closed with the link
	down   bool          // Recv has reported that the link is down
}

// againEvery is the time between two attempts to meet the other program, and between two checks whether a
// listener can still be reached.
const againEvery = 200 * time.Millisecond

const socketKind = "unixpacket"

// OpenUnix opens a link through a socket at a path. It removes a socket on
// which no program listens any more. It returns EADDRINUSE if the path is not a
// socket.
func OpenUnix(path string) (Link, error) {
	s := &socket{path: path, end: make(chan struct{})}
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

func (s *socket) set(peer *net.UnixConn, l *unixsocket.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer, s.listen, s.down = peer, l, false
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

// accept waits for the other program. Only one is served. A listener that cannot be reached any more,
// because its socket was removed or replaced, ends; Recv then meets again.
func (s *socket) accept(l *unixsocket.Listener) {
	var c *net.UnixConn
	for {
		var err error
		l.SetDeadline(time.Now().Add(againEvery))
		if c, err = l.AcceptUnix(); err == nil {
			break
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) { // the process has no free descriptors
			time.Sleep(againEvery)
		}
		if l.Named() {
			continue
		}
		s.mu.Lock()
		if s.listen == l {
			s.drop()
			s.ready.Broadcast()
		}
		s.mu.Unlock()
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

// Send implements Link. Without a peer the frame is lost. A message of 0 bytes looks like the end of the
// connection, so that an empty frame is lost, too.
func (s *socket) Send(frame []byte) error {
	s.mu.Lock()
	peer, closed := s.peer, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return net.ErrClosed
	case peer == nil || len(frame) == 0:
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
		for s.peer == nil && s.listen != nil && !s.closed {
			s.ready.Wait()
		}
		peer, closed := s.peer, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return 0, net.ErrClosed
		case peer == nil:
			if err := s.again(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := peer.Read(b)
		if err == nil && n > 0 {
			return n, nil
		}
		if errors.Is(err, io.EOF) && connected(peer) {
			continue // a message of 0 bytes
		}
		s.lost(peer)
	}
}

// lost ends the use of a peer that has ended.
func (s *socket) lost(peer *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer == peer {
		peer.Close()
		s.peer = nil
	}
}

// again meets the other program after a peer or the listener was lost. It reports the first failure, and
// then goes on trying until the link is closed.
func (s *socket) again() error {
	for {
		err := s.meet()
		if err == nil {
			return nil
		}
		s.mu.Lock()
		first := !s.down
		s.down = true
		s.mu.Unlock()
		if first {
			return err
		}
		select {
		case <-s.end:
			return net.ErrClosed
		case <-time.After(againEvery):
		}
	}
}

// connected reports whether the other end of c is open.
func connected(c *net.UnixConn) bool {
	open := false
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(p, 0)
			open = err == nil && n == 0
		})
	}
	return open
}

// Close implements Link.
func (s *socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	close(s.end)
	s.drop()
	s.ready.Broadcast()
	return nil
}
