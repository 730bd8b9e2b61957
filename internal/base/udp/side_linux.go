package udp

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/roce/packetconn"
)

// A Side is what a process has beside a socket of an address that several processes share.
// Recv and Poll of the Conn call its methods one at a time, except for Wake.
type Side interface {
	// Poll fills trains with what has arrived beside the socket, and returns their number.
	// It does not wait. It may exchange buffers of trains, but loses none.
	Poll(trains []packetconn.Datagrams) int

	// Own removes datagrams that belong to other processes from trains that arrived at
	// the socket, and returns the number of trains that are left. It may exchange buffers,
	// but loses none.
	Own(trains []packetconn.Datagrams) int

	// Wait waits until the socket is readable, Poll has something, or Wake is called.
	Wait()

	// Wake ends the current call of Wait and all further ones.
	Wake()
}

// Bind returns a socket at addr, without a Conn. With reuse, further sockets can be bound to the
// address that are opened with reuse, too.
func Bind(addr netip.AddrPort, opts *Options, reuse bool) (*os.File, error) {
	if err := usable(addr.Addr()); err != nil {
		return nil, err
	}
	c := new(conn)
	if err := c.bind(addr, options(opts), reuse); err != nil {
		return nil, listenError(addr, err)
	}
	return c.file, nil
}

// Open returns a Conn on a socket that Bind returned, here or in another process, and that is
// bound to local. Close closes the file and leaves the socket as it is. A nil side means that
// nothing is beside it.
func Open(f *os.File, local netip.AddrPort, opts *Options, side Side) (packetconn.Conn, error) {
	o := options(opts)
	c := &conn{sendmmsg: sendmmsg, spin: newSpin(o.Spin), file: f, local: local, side: side}
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { c.setup(int(fd), local.Addr(), o) })
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	return c, nil
}

// StopGRO makes a socket deliver each datagram of the network by itself.
func StopGRO(f *os.File) {
	raw, err := f.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0) })
	}
}
