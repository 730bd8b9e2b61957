package bareudp

import (
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a blocking socket on loopback. It is held by an os.File, which does not close the
// descriptor during a call. The peer's address is kept in the kernel's form.
type socket struct {
	file    *os.File
	conn    syscall.RawConn
	stopped atomic.Bool
	buf     []byte
	peer    unix.RawSockaddrInet4
	peerLen uint32

	// Method values for conn, bound once, and their argument and results.
	doRecv, doSend func(fd uintptr) bool
	n              int
	errno          syscall.Errno
}

func newSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := setup(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	s := &socket{file: os.NewFile(uintptr(fd), "udp"), buf: make([]byte, 1<<16)}
	s.doRecv, s.doSend = s.recvfrom, s.sendto
	if s.conn, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

func setup(fd int) error {
	// First up to the limit without privilege, then with privilege.
	const buffer = 8 << 20
	for _, o := range [...]int{unix.SO_RCVBUF, unix.SO_SNDBUF, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, buffer)
	}
	// The timeout limits the time after which a blocked receiver sees that it was
	// stopped.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}

// control calls f with the descriptor, for operations that are not measured.
func (s *socket) control(f func(fd int) error) error {
	var err error
	if cerr := s.conn.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// addr returns the address that the socket is bound to.
func (s *socket) addr() netip.AddrPort {
	var at netip.AddrPort
	_ = s.control(func(fd int) error {
		bound, err := unix.Getsockname(fd)
		if b, ok := bound.(*unix.SockaddrInet4); ok {
			at = netip.AddrPortFrom(netip.AddrFrom4(b.Addr), uint16(b.Port))
		}
		return err
	})
	return at
}

// first sets the peer.
func (s *socket) first(to netip.AddrPort) {
	port := [2]byte{byte(to.Port() >> 8), byte(to.Port())} // in network order
	s.peer = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As4()}
	s.peerLen = unix.SizeofSockaddrInet4
}

// recv receives one datagram or train and stores the peer's address. It returns net.ErrClosed
// after close.
func (s *socket) recv() (int, error) {
	for {
		err := s.conn.Read(s.doRecv)
		switch {
		case s.stopped.Load() || err != nil:
			return 0, net.ErrClosed
		case s.errno == unix.EAGAIN, s.errno == unix.EINTR:
		case s.errno != 0:
			return 0, s.errno
		default:
			return s.n, nil
		}
	}
}

func (s *socket) recvfrom(fd uintptr) bool {
	s.peerLen = unix.SizeofSockaddrInet4
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&s.buf[0])), uintptr(len(s.buf)), 0,
		uintptr(unsafe.Pointer(&s.peer)), uintptr(unsafe.Pointer(&s.peerLen)))
	s.n, s.errno = int(n), errno
	return true
}

// send sends n bytes to the peer, in datagrams of the socket's segment size if it has one.
func (s *socket) send(n int) error {
	s.n = n
	if s.conn.Write(s.doSend) != nil {
		return net.ErrClosed
	}
	if s.errno != 0 {
		return s.errno
	}
	return nil
}

func (s *socket) sendto(fd uintptr) bool {
	_, _, s.errno = unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.buf[0])), uintptr(s.n), 0,
		uintptr(unsafe.Pointer(&s.peer)), uintptr(s.peerLen))
	return true
}

// close makes the current or next recv return.
func (s *socket) close() {
	s.stopped.Store(true)
	_ = s.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
	s.file.Close()
}
