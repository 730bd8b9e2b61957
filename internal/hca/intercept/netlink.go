//go:build linux && (amd64 || arm64)

package intercept

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A program's socket of NETLINK_RDMA is one of NETLINK_USERSOCK that the supervisor has made:
// the kernel delivers datagrams between sockets of that protocol. The supervisor takes and answers the
// datagrams that the program sends to port 0, which is the kernel. Answers come from a socket of the supervisor, and
// it executes the program's recvfrom and recvmsg, so that port 0 is the sender there.
const (
	netlinkUser = 2 // NETLINK_USERSOCK of <linux/netlink.h>

	// mostNetlink is the longest request, and mostPieces the most pieces that it has.
	mostNetlink = 4096
	mostPieces  = 8
)

// openNetlink answers socket(AF_NETLINK, type, NETLINK_RDMA).
func (s *Supervisor) openNetlink(c *Call, a *[6]uint64) (int, error) {
	if s.cfg.Netlink == nil {
		return 0, unix.EPROTONOSUPPORT
	}
	typ := int(int32(a[1]))
	fd, err := unix.Socket(unix.AF_NETLINK, typ|unix.SOCK_CLOEXEC, netlinkUser)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	at, err := s.freeFD(c, fdRange.sockets)
	if err != nil {
		return s.refuse(c, "socket", err)
	}
	closeOnExec := typ&unix.SOCK_CLOEXEC != 0
	to, err := c.add(fd, at, closeOnExec)
	if err == unix.EBADF && raiseLimit(c.Process(), at) {
		to, err = c.add(fd, at, closeOnExec)
	}
	return to, err
}

// netlinkHandler returns the handler of a system call on a descriptor. If the descriptor is a socket of NETLINK_RDMA,
// handle answers the call, and its argument socket is the supervisor's own descriptor of that socket.
func netlinkHandler(handle func(s *Supervisor, c *Call, socket int) (int, error)) handler {
	return func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		socket, err := c.copyOf(int(int32(a[0])))
		if err != nil {
			return 0, errInKernel
		}
		defer unix.Close(socket)
		domain, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_DOMAIN)
		protocol, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if domain != unix.AF_NETLINK || protocol != netlinkUser {
			return 0, errInKernel
		}
		return handle(s, c, socket)
	}
}

// sendNetlink answers write, sendto and sendmsg.
func (s *Supervisor) sendNetlink(c *Call, socket int) (int, error) {
	var (
		request []byte
		name    uint64
		err     error
	)
	switch a := &c.n.Args; uint32(c.n.Nr) {
	case unix.SYS_SENDTO:
		name = a[4]
		fallthrough
	case unix.SYS_WRITE:
		request, err = c.gather([][2]uint64{{a[1], a[2]}})
	default:
		request, name, err = c.message(a[1])
	}
	if err != nil || s.cfg.Netlink == nil || !c.toKernel(name) {
		return 0, errInKernel // which finds the error, too
	}
	port, err := portOf(socket, c.Process())
	if err == nil {
		err = s.kernel.send(port, s.cfg.Netlink(request, port))
	}
	if err != nil {
		return 0, unix.ENOBUFS
	}
	return len(request), nil
}

// connectNetlink answers connect. The socket is not connected: one
// that is connected to port 0 refuses the answers, which come from the port of the supervisor's socket. It gets its own
// number, as by the kernel's connect.
func (s *Supervisor) connectNetlink(c *Call, socket int) (int, error) {
	if name := c.n.Args[1]; name == 0 || !c.toKernel(name) {
		return 0, errInKernel
	}
	_, err := portOf(socket, c.Process())
	return 0, err
}

// kernelSocket is the socket from which programs get answers. A run has it from its start to its end.
type kernelSocket struct {
	file *os.File
	port uint32
	err  error // why there is none
}

func (k *kernelSocket) open() {
	var fd int
	if fd, k.err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, netlinkUser); k.err == nil {
		k.file = os.NewFile(uintptr(fd), "netlink")
		k.port, k.err = portOf(fd, 0)
	}
}

// send sends datagrams to the socket of a port. A socket whose queue is full loses them, as it would lose the kernel's.
func (k *kernelSocket) send(port uint32, datagrams [][]byte) error {
	if k.err != nil {
		return k.err
	}
	return withFD(k.file, func(fd int) error {
		for _, d := range datagrams {
			if unix.Sendto(fd, d, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port}) != nil {
				break
			}
		}
		return nil
	})
}

func (k *kernelSocket) close() { k.file.Close() } // nil: there is none

// receiveNetlink answers recvfrom and recvmsg. Without a datagram it waits as the kernel would.
func (s *Supervisor) receiveNetlink(c *Call, socket int) (int, error) {
	var r receiving
	var err error
	if uint32(c.n.Nr) == unix.SYS_RECVFROM {
		a := &c.n.Args
		r = receiving{pieces: [][2]uint64{{a[1], a[2]}}, flags: int(a[3]), name: a[4], nameLen: a[5]}
	} else if r, err = c.receiving(); err != nil {
		return 0, errInKernel // which finds the error, too
	}
	const known = unix.MSG_PEEK | unix.MSG_TRUNC | unix.MSG_DONTWAIT | unix.MSG_CMSG_CLOEXEC
	if r.flags&^known != 0 || s.kernel.err != nil {
		return 0, errInKernel
	}
	if r.flags&unix.MSG_DONTWAIT == 0 && !c.NonBlocking() {
		if err := c.await(socket); err != nil {
			return 0, err
		}
	}
	b := make([]byte, 1<<16)
	n, from, err := unix.Recvfrom(socket, b, r.flags|unix.MSG_DONTWAIT|unix.MSG_TRUNC)
	sender, ok := from.(*unix.SockaddrNetlink)
	if err != nil || !ok {
		return 0, errInKernel
	}
	if sender.Pid == s.kernel.port {
		sender.Pid = 0
	}
	return c.receive(&r, b[:min(n, len(b))], sender)
}

// await waits for a datagram. A signal that ends the call before answers it.
func (c *Call) await(socket int) error {
	limit, _ := unix.GetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO)
	var end time.Time
	if limit != nil && limit.Nano() != 0 {
		end = time.Now().Add(time.Duration(limit.Nano()))
	}
	if arrived(socket, 0) {
		return nil
	}
	c.Defer(c.Interrupt)
	for c.Alive() {
		if arrived(socket, int(signalPeriod.Milliseconds())) {
			return nil
		}
		if !end.IsZero() && time.Now().After(end) {
			return unix.EAGAIN
		}
	}
	return errAnswered
}

// receiving is a call that receives.
type receiving struct {
	pieces        [][2]uint64
	flags         int
	name, nameLen uint64 // where the sender's address goes, and its length
	header        uint64 // of recvmsg
	room          uint32 // for the address; of recvmsg
}

// receiving reads the arguments of recvmsg.
func (c *Call) receiving() (r receiving, err error) {
	var h [unix.SizeofMsghdr]byte
	at := c.n.Args[1]
	if err := c.Read(at, h[:]); err != nil {
		return r, err
	}
	pieces, err := c.pieces(h[:])
	return receiving{pieces: pieces, flags: int(c.n.Args[2]), name: leUint64(h[0:]), header: at, room: binary.NativeEndian.Uint32(h[8:])}, err
}

// receive gives a datagram to the caller. It returns the result of the call.
func (c *Call) receive(r *receiving, datagram []byte, from *unix.SockaddrNetlink) (int, error) {
	rest := datagram
	for _, p := range r.pieces {
		n := min(p[1], uint64(len(rest)))
		if err := c.Write(p[0], rest[:n]); n > 0 && err != nil {
			return 0, unix.EFAULT
		}
		rest = rest[n:]
	}
	name := make([]byte, unix.SizeofSockaddrNetlink)
	binary.NativeEndian.PutUint16(name, unix.AF_NETLINK)
	binary.NativeEndian.PutUint32(name[4:], from.Pid)
	binary.NativeEndian.PutUint32(name[8:], from.Groups)
	room, length := r.room, binary.NativeEndian.AppendUint32(nil, uint32(len(name)))
	if r.header == 0 && r.name != 0 {
		var b [4]byte
		if c.Read(r.nameLen, b[:]) != nil || c.Write(r.nameLen, length) != nil {
			return 0, unix.EFAULT
		}
		room = binary.NativeEndian.Uint32(b[:])
	}
	if r.name != 0 && c.Write(r.name, name[:min(room, uint32(len(name)))]) != nil {
		return 0, unix.EFAULT
	}
	if r.header != 0 {
		tail := make([]byte, 16) // msg_controllen and msg_flags
		if len(rest) > 0 {
			binary.NativeEndian.PutUint32(tail[8:], unix.MSG_TRUNC)
		}
		if r.name == 0 {
			clear(length)
		}
		const atNameLen, atControlLen = 8, 40
		if c.Write(r.header+atNameLen, length) != nil || c.Write(r.header+atControlLen, tail[:12]) != nil {
			return 0, unix.EFAULT
		}
	}
	if r.flags&unix.MSG_TRUNC != 0 {
		return len(datagram), nil
	}
	return len(datagram) - len(rest), nil
}

// optionNetlink answers getsockopt.
func (s *Supervisor) optionNetlink(c *Call, _ int) (int, error) {
	a := &c.n.Args
	if a[1] != unix.SOL_SOCKET || a[2] != unix.SO_PROTOCOL {
		return 0, errInKernel
	}
	var room [4]byte
	if c.Read(a[4], room[:]) != nil {
		return 0, unix.EFAULT
	}
	n := int32(binary.NativeEndian.Uint32(room[:]))
	if n < 0 {
		return 0, unix.EINVAL
	}
	value := binary.NativeEndian.AppendUint32(nil, netlinkRDMA)[:min(n, 4)]
	if c.Write(a[3], value) != nil {
		return 0, unix.EFAULT
	}
	return c.deliver(binary.NativeEndian.AppendUint32(nil, uint32(len(value))), a[4], 0)
}

// portOf returns the number of a netlink socket. A socket without one gets it, as the kernel
// gives it one when it sends: that of its process, if no other socket has it.
func portOf(socket, process int) (uint32, error) {
	for _, wanted := range []int{process, 0, 0} {
		name, err := unix.Getsockname(socket)
		if err != nil {
			return 0, err
		}
		if nl, ok := name.(*unix.SockaddrNetlink); ok && nl.Pid != 0 {
			return nl.Pid, nil
		}
		err = unix.Bind(socket, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: uint32(wanted)})
		if err != nil && err != unix.EADDRINUSE {
			return 0, err
		}
	}
	return 0, unix.EINVAL
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
	pieces, err := c.pieces(h[:])
	if err != nil {
		return nil, 0, err
	}
	data, err = c.gather(pieces)
	return data, leUint64(h[0:]), err
}

// pieces reads the pieces of the caller's memory that a struct msghdr names.
func (c *Call) pieces(h []byte) (pieces [][2]uint64, err error) {
	count := leUint64(h[24:])
	if count > mostPieces {
		return nil, unix.EMSGSIZE
	}
	list := make([]byte, unix.SizeofIovec*count)
	if err := c.Read(leUint64(h[16:]), list); err != nil {
		return nil, err
	}
	for ; len(list) > 0; list = list[unix.SizeofIovec:] {
		pieces = append(pieces, [2]uint64{leUint64(list), leUint64(list[8:])})
	}
	return pieces, nil
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
