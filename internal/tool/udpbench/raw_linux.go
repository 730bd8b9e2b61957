package udpbench

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw is a blocking socket. It is held by an os.File, which does not close the descriptor
// during a call. The peer's address is kept in the kernel's form.
type raw struct {
	file    *os.File
	conn    syscall.RawConn
	stopped atomic.Bool
	buf     []byte
	peer    unix.RawSockaddrInet6 // also large enough for an IPv4 address
	peerLen uint32

	// Method values for conn, bound once, and their argument and results.
	doRecv, doSend func(fd uintptr) bool
	n              int
	errno          syscall.Errno
}

func newRaw(addr netip.AddrPort) (*raw, error) {
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := setup(fd, addr); err != nil {
		unix.Close(fd)
		return nil, err
	}
	r := &raw{file: os.NewFile(uintptr(fd), "udp"), buf: make([]byte, 1<<16)}
	r.doRecv, r.doSend = r.recvfrom, r.sendto
	if r.conn, err = r.file.SyscallConn(); err != nil {
		r.file.Close()
		return nil, err
	}
	return r, nil
}

func setup(fd int, addr netip.AddrPort) error {
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
	return unix.Bind(fd, sockaddr(addr))
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// control calls f with the descriptor, for operations that are not measured.
func (r *raw) control(f func(fd int) error) error {
	var err error
	if cerr := r.conn.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

// addr returns the address that the socket is bound to.
func (r *raw) addr() netip.AddrPort {
	var s unix.Sockaddr
	_ = r.control(func(fd int) (err error) {
		s, err = unix.Getsockname(fd)
		return err
	})
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}

// first sets the peer.
func (r *raw) first(to netip.AddrPort) {
	port := [2]byte{byte(to.Port() >> 8), byte(to.Port())} // in network order
	if to.Addr().Is4() {
		s := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.peer))
		*s = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As4()}
		r.peerLen = unix.SizeofSockaddrInet4
		return
	}
	r.peer = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As16()}
	r.peerLen = unix.SizeofSockaddrInet6
}

// recv receives one datagram or train and stores the peer's address.
func (r *raw) recv() (int, error) {
	for {
		err := r.conn.Read(r.doRecv)
		switch {
		case r.stopped.Load() || err != nil:
			return 0, net.ErrClosed
		case r.errno == unix.EAGAIN, r.errno == unix.EINTR:
		case r.errno != 0:
			return 0, r.errno
		default:
			return r.n, nil
		}
	}
}

func (r *raw) recvfrom(fd uintptr) bool {
	r.peerLen = unix.SizeofSockaddrInet6
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&r.buf[0])), uintptr(len(r.buf)), 0,
		uintptr(unsafe.Pointer(&r.peer)), uintptr(unsafe.Pointer(&r.peerLen)))
	r.n, r.errno = int(n), errno
	return true
}

// send sends n bytes to the peer.
func (r *raw) send(n int) error {
	r.n = n
	if r.conn.Write(r.doSend) != nil {
		return net.ErrClosed
	}
	if r.errno != 0 {
		return r.errno
	}
	return nil
}

func (r *raw) sendto(fd uintptr) bool {
	_, _, r.errno = unix.Syscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&r.buf[0])), uintptr(r.n), 0,
		uintptr(unsafe.Pointer(&r.peer)), uintptr(r.peerLen))
	return true
}

// close makes the current or next recv return.
func (r *raw) close() {
	r.stopped.Store(true)
	_ = r.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
	r.file.Close()
}

func newRawPinger(addr netip.AddrPort) (pinger, error) {
	r, err := newRaw(addr)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// rawSender sends its buffer, which the kernel segments as set by a socket option.
type rawSender struct {
	*raw
	size int
}

func (s rawSender) send() error { return s.raw.send(s.size) }

type rawReceiver struct{ *raw }

func (r rawReceiver) recv() (int, error) {
	n, err := r.raw.recv()
	if err == net.ErrClosed {
		err = nil
	}
	return n, err
}

func rawStream(addr netip.AddrPort, seg, count int) (sender, receiver, error) {
	a, err := newRaw(addr)
	if err != nil {
		return nil, nil, err
	}
	b, err := newRaw(addr)
	if err != nil {
		a.close()
		return nil, nil, err
	}
	err = errors.Join(
		a.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, seg) }),
		b.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) }),
	)
	if err != nil {
		a.close()
		b.close()
		return nil, nil, err
	}
	a.first(b.addr())
	return rawSender{a, seg * count}, rawReceiver{b}, nil
}
