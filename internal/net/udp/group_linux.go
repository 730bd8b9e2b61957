package udp

import (
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
)

// Join implements packetconn.Joiner. A socket that is bound to an address of the host gets
// no datagrams that are sent to a group, so the group has a socket of its own, bound to the
// group's address. Sockets of several processes may be bound to it.
func (c *conn) Join(group netip.Addr) (packetconn.Conn, error) {
	const op = "join a multicast group"
	local := c.local.Addr()
	if !group.IsMulticast() || group.Is4() != local.Is4() {
		return nil, failure.New(op, syscall.EINVAL, "address %v: must be a multicast group's, of the family of %v", group, local)
	}
	i, err := interfaceOf(local)
	if err != nil {
		return nil, failure.New(op, failure.Errno(err, syscall.EINVAL), "group %v: no interface has the address %v", group, local)
	}
	g := &conn{sendmmsg: sendmmsg, opts: c.opts, local: netip.AddrPortFrom(group, c.local.Port())}
	fd, err := g.open(group, local, i.Index)
	if err == nil {
		g.file = os.NewFile(uintptr(fd), "udp group")
		err = g.start()
	}
	if err != nil {
		return nil, failure.New(op, failure.Errno(err, syscall.EINVAL), "group %v on %s: %v", group, i.Name, err)
	}
	return g, nil
}

// open returns a socket that is bound to the group and has joined it on the interface with
// an index and an address.
func (c *conn) open(group, local netip.Addr, index int) (fd int, err error) {
	family := unix.AF_INET
	if group.Is6() {
		family = unix.AF_INET6
	}
	// Package net binds to the unspecified address when it listens at a group.
	if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	c.setup(fd, group)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, err
	}
	port := int(c.local.Port())
	if group.Is6() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return -1, err
		}
		m := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)}
		if err := unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &m); err != nil {
			return -1, err
		}
		return fd, unix.Bind(fd, &unix.SockaddrInet6{Port: port, Addr: group.As16(), ZoneId: uint32(index)})
	}
	// Without this, the socket would get the groups of all sockets of the host.
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0); err != nil {
		return -1, err
	}
	m := unix.IPMreqn{Multiaddr: group.As4(), Address: local.As4(), Ifindex: int32(index)}
	if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &m); err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: group.As4()})
}

// sendGroupsFrom makes the datagrams of an IPv6 socket to groups leave through the
// interface with its address. For IPv4 the kernel does so by itself.
func sendGroupsFrom(fd int, local netip.Addr) {
	if !local.Is6() {
		return
	}
	if i, err := interfaceOf(local); err == nil {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, i.Index)
	}
}
