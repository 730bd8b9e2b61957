package udp

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/packetconn"
)

// dontFragment sets the don't-fragment bit in every packet, so that the kernel refuses
// datagrams larger than the path's MTU. With this setting the identification of an
// unconnected socket's packets is 0 (ip_select_ident in the kernel's include/net/ip.h).
func dontFragment(rc syscall.RawConn, v4 bool) error {
	var err error
	cerr := rc.Control(func(fd uintptr) {
		if v4 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
		}
	})
	return errors.Join(cerr, err)
}

// setup sets the options of c.opts, which affect performance only, on a socket that is not yet bound.
// It records in c.caps which ones the kernel grants.
func (c *conn) setup(fd int, addr netip.Addr) {
	c.caps = packetconn.Caps{Batch: true, KnownID: true, Poll: true}

	level, tos, hops := unix.IPPROTO_IP, unix.IP_RECVTOS, unix.IP_RECVTTL
	if addr.Is6() {
		level, tos, hops = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, unix.IPV6_RECVHOPLIMIT
	}
	c.caps.ECN = unix.SetsockoptInt(fd, level, tos, 1) == nil
	_ = unix.SetsockoptInt(fd, level, hops, 1) // for the headers of datagrams, and for recordings

	// Kernels before 4.18 have no UDP_SEGMENT, and kernels before 5.0 have no
	// UDP_GRO. They return an error for the option.
	switch {
	case c.opts.NoGSO:
		c.caps.Degraded = "GSO is switched off"
	case unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) != nil:
		c.caps.Degraded = "the kernel has no UDP_SEGMENT"
	default:
		c.caps.GSO = true
	}
	if addr.Is6() {
		// Linux's soft-RoCE sends IPv6 packets without a UDP checksum, which the
		// kernel drops by default. The invariant CRC covers the packet.
		_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
	if !c.opts.NoGRO && unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil {
		c.caps.GRO = true
	}

	// The FORCE options exceed the sysctl limits, but need CAP_NET_ADMIN.
	c.caps.RecvBuffer = buffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, c.opts.RecvBuffer)
	c.caps.SendBuffer = buffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, c.opts.SendBuffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1) // for Dropped
}

// buffer requests a socket buffer of n bytes and returns the granted size. The kernel
// doubles the requested size to allow for its own overhead, and reports the doubled size.
func buffer(fd, force, plain, n int) int {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, n)
	}
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
	if err != nil {
		return 0
	}
	return got
}

// knownSegments caches the result of segments.
var knownSegments atomic.Int32

// segments returns the number of datagrams that a GSO call takes. The kernel does not
// report it, but refuses a call with too many before it sends anything. A temporary
// socket that sends to itself therefore finds it out.
func segments() int {
	if n := knownSegments.Load(); n != 0 {
		return int(n)
	}
	n, certain := probeSegments()
	if certain {
		knownSegments.Store(int32(n))
	}
	return n
}

func probeSegments() (n int, certain bool) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return minSegments, false
	}
	defer unix.Close(fd)
	loopback := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if unix.Bind(fd, loopback) != nil {
		return minSegments, false
	}
	self, err := unix.Getsockname(fd)
	if err != nil || unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 1) != nil {
		return minSegments, false
	}
	switch unix.Sendto(fd, make([]byte, maxSegments), unix.MSG_DONTWAIT, self) {
	case nil:
		return maxSegments, true
	case unix.EINVAL:
		return minSegments, true
	}
	return minSegments, false // there is no loopback interface, or it is down
}

// pathMTU returns the kernel's MTU of the route.
func pathMTU(local, peer netip.Addr) (int, error) {
	family, level, option := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU
	if local.Is6() {
		family, level, option = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(local, 0))); err != nil {
		return 0, err
	}
	// The port does not matter, because connecting a UDP socket sends nothing.
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(peer, 9))); err != nil {
		return 0, err
	}
	mtu, err := unix.GetsockoptInt(fd, level, option)
	if err == unix.ENOPROTOOPT { // an emulator of Linux, for example qemu-user
		return interfaceMTU(local)
	}
	return mtu, err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: zoneID(a.Addr().Zone())}
}

// zones converts addresses to the kernel's form and back. It caches the last zone,
// because resolving a zone takes system calls. One entry is enough, as the peers of a
// socket are usually on one link.
type zones struct {
	mu   sync.Mutex
	name string
	id   uint32
}

// put writes a to s and returns its length.
func (z *zones) put(s *unix.RawSockaddrInet6, a netip.AddrPort) uint32 {
	ip, port := a.Addr(), a.Port()
	if ip.Is4() {
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(s))
		*s4 = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: ip.As4()}
		putPort(&s4.Port, port)
		return unix.SizeofSockaddrInet4
	}
	*s = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: ip.As16()}
	putPort(&s.Port, port)
	if zone := ip.Zone(); zone != "" {
		s.Scope_id = z.toID(zone)
	}
	return unix.SizeofSockaddrInet6
}

// take returns the address that the kernel wrote to s.
func (z *zones) take(s *unix.RawSockaddrInet6) netip.AddrPort {
	switch s.Family {
	case unix.AF_INET:
		s4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(s))
		return netip.AddrPortFrom(netip.AddrFrom4(s4.Addr), port(&s4.Port))
	case unix.AF_INET6:
		ip := netip.AddrFrom16(s.Addr)
		if s.Scope_id != 0 {
			ip = ip.WithZone(z.toName(s.Scope_id))
		}
		return netip.AddrPortFrom(ip, port(&s.Port))
	}
	return netip.AddrPort{}
}

func (z *zones) toID(name string) uint32 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.name != name {
		z.name, z.id = name, zoneID(name)
	}
	return z.id
}

func (z *zones) toName(id uint32) string {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.id != id {
		z.name, z.id = strconv.FormatUint(uint64(id), 10), id
		if i, err := net.InterfaceByIndex(int(id)); err == nil {
			z.name = i.Name
		}
	}
	return z.name
}

// zoneID returns the index of the interface that a zone names, or the number if the zone
// is one. It returns 0 if the zone is neither.
func zoneID(name string) uint32 {
	if name == "" {
		return 0
	}
	if i, err := net.InterfaceByName(name); err == nil {
		return uint32(i.Index)
	}
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// The kernel stores a port in network byte order in a field of native order.
func putPort(p *uint16, port uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(port>>8), byte(port)
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}
