//go:build linux && (amd64 || arm64)

package intercept

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// A program's socket of NETLINK_RDMA is one of NETLINK_USERSOCK that the supervisor has made:
// the kernel delivers datagrams between sockets of that protocol. The program receives from it
// as from any socket. The supervisor takes and answers the datagrams that the program sends to
// port 0, which is the kernel.
const (
	netlinkUser = 2 // NETLINK_USERSOCK of <linux/netlink.h>

	// mostNetlink is the longest request, and mostPieces the most pieces that it has.
	mostNetlink = 4096
	mostPieces  = 8
)

// openNetlink answers socket(AF_NETLINK, type, NETLINK_RDMA).
func (s *Supervisor) openNetlink(c *Call) {
	if s.cfg.Netlink == nil {
		c.Fail(unix.EPROTONOSUPPORT)
		return
	}
	typ := int(c.n.Args[1])
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|typ&unix.SOCK_NONBLOCK, netlinkUser)
	if err != nil {
		c.Fail(unix.EPROTONOSUPPORT)
		return
	}
	defer unix.Close(fd)
	at, err := s.freeFD(c, fdRange.sockets)
	if err != nil {
		s.refuse(c, "socket", err)
		return
	}
	closeOnExec := typ&unix.SOCK_CLOEXEC != 0
	to, err := c.add(fd, at, closeOnExec)
	if err == unix.EBADF && raiseLimit(c.Process(), at) {
		to, err = c.add(fd, at, closeOnExec)
	}
	c.finish(to, err)
}

// sendNetlink answers sendto and sendmsg on a descriptor that may be such a socket.
func (s *Supervisor) sendNetlink(c *Call) {
	var (
		request []byte
		name    uint64
		err     error
	)
	if a := &c.n.Args; uint32(c.n.Nr) == unix.SYS_SENDTO {
		name = a[4]
		request, err = c.gather([][2]uint64{{a[1], a[2]}})
	} else {
		request, name, err = c.message(a[1])
	}
	if err != nil || s.cfg.Netlink == nil || !c.toKernel(name) {
		c.Continue() // the kernel finds the error, too
		return
	}
	socket, err := c.netlinkSocket()
	if err != nil {
		c.Continue()
		return
	}
	defer unix.Close(socket)
	port, err := portOf(socket)
	if err == nil {
		err = reply(port, s.cfg.Netlink(request, port))
	}
	if err != nil {
		c.Fail(unix.ENOBUFS)
		return
	}
	c.Return(int64(len(request)))
}

// reply sends datagrams to the socket of a port. A socket whose queue is full loses them, as it would lose the kernel's.
func reply(port uint32, datagrams [][]byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, netlinkUser)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, d := range datagrams {
		if err := unix.Sendto(fd, d, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}); err != nil {
			break
		}
	}
	return nil
}

// portOf returns the number of a netlink socket. A socket without one gets it, as the kernel
// gives it one when it sends.
func portOf(socket int) (uint32, error) {
	for range 2 {
		name, err := unix.Getsockname(socket)
		if err != nil {
			return 0, err
		}
		if nl, ok := name.(*unix.SockaddrNetlink); ok && nl.Pid != 0 {
			return nl.Pid, nil
		}
		if err := unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return 0, err
		}
	}
	return 0, unix.EINVAL
}

// netlinkSocket returns a descriptor of the socket that the call is about, or an error if it is none
// of NETLINK_USERSOCK.
func (c *Call) netlinkSocket() (int, error) {
	fd, err := c.copyOf(int(int32(c.n.Args[0])))
	if err != nil {
		return -1, err
	}
	domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	protocol, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if domain != unix.AF_NETLINK || protocol != netlinkUser {
		unix.Close(fd)
		return -1, unix.ENOTSOCK
	}
	return fd, nil
}

// toKernel reports whether the address at name, a sockaddr_nl, is the kernel's. A socket that names
// no receiver sends to the kernel.
func (c *Call) toKernel(name uint64) bool {
	if name == 0 {
		return true
	}
	var b [unix.SizeofSockaddrNetlink]byte
	if c.Read(name, b[:]) != nil {
		return false
	}
	return binary.NativeEndian.Uint16(b[:]) == unix.AF_NETLINK && binary.NativeEndian.Uint32(b[4:]) == 0
}

// message reads a struct msghdr and returns its bytes and the place of its address.
func (c *Call) message(at uint64) (data []byte, name uint64, err error) {
	var h [unix.SizeofMsghdr]byte
	if err := c.Read(at, h[:]); err != nil {
		return nil, 0, err
	}
	count := leUint64(h[24:])
	if count > mostPieces {
		return nil, 0, unix.EMSGSIZE
	}
	list := make([]byte, unix.SizeofIovec*count)
	if err := c.Read(leUint64(h[16:]), list); err != nil {
		return nil, 0, err
	}
	var pieces [][2]uint64
	for ; len(list) > 0; list = list[unix.SizeofIovec:] {
		pieces = append(pieces, [2]uint64{leUint64(list), leUint64(list[8:])})
	}
	data, err = c.gather(pieces)
	return data, leUint64(h[0:]), err
}

var errLongRequest = errors.New("a netlink request is too long")

// gather reads pieces of the caller's memory, each an address and a length.
func (c *Call) gather(pieces [][2]uint64) (data []byte, err error) {
	for _, p := range pieces {
		if p[1] > mostNetlink-uint64(len(data)) {
			return nil, errLongRequest
		}
		at := len(data)
		data = append(data, make([]byte, p[1])...)
		if err := c.Read(p[0], data[at:]); err != nil {
			return nil, err
		}
	}
	return data, nil
}
