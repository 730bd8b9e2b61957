package udp

import (
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// A Side is a second source of datagrams beside the socket, for a process that shares its address
// with other processes: datagrams that they hand over. A Conn calls the methods one at a time,
// from Recv and Poll, except for Wake.
type Side interface {
	// Poll fills trains with datagrams that did not come from the socket, and returns the
	// number of trains. It does not wait. It may exchange the buffers of trains among them.
	Poll(trains []packetconn.Train) int

	// Own removes datagrams that belong to other processes from trains that arrived at
	// the socket, and returns the number of trains that are left. It may exchange the
	// buffers of trains among them.
	Own(trains []packetconn.Train) int

	// Wait waits until the socket is readable, Poll has something, or Wake is called.
	Wait()

	// Wake ends the current call of Wait and all further ones.
	Wake()
}

// Bind returns a socket at addr, without a Conn. With reuse, several sockets can be bound to the
// address, provided that each is opened with reuse.
func Bind(addr netip.AddrPort, opts *Options, reuse bool) (*os.File, error) {
	if err := usable(addr.Addr()); err != nil {
		return nil, err
	}
	c := &conn{opts: options(opts)}
	if err := c.bind(addr, reuse); err != nil {
		return nil, listenError(addr, err)
	}
	return c.file, nil
}

// Open returns a Conn on a socket that Bind returned, here or in another process, and that is
// bound to local. Close closes the file without shutting the socket down, which other processes
// may use. side is nil if the socket is the only source of datagrams.
func Open(f *os.File, local netip.AddrPort, opts *Options, side Side) (netconn.Conn, error) {
	c := &conn{sendmmsg: sendmmsg, spin: newSpin(), opts: options(opts), file: f, local: local, side: side}
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { c.setup(int(fd), local.Addr()) })
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

// StopGRO makes a socket deliver each datagram as a train of its own.
func StopGRO(f *os.File) {
	raw, err := f.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_GRO, 0) })
	}
}
