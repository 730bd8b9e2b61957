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

	"github.com/softmkey/softmkey/roce/packetconn"
)

// dontFragment sets the bit in every packet and makes the kernel refuse what is
// larger than the path's MTU. With it the identification of an unconnected socket
// is 0 (ip_select_ident in the kernel's include/net/ip.h).
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

// setup sets the options that are a matter of speed, on a socket that is not
// bound yet, and notes in c.caps what the kernel grants.
func (c *conn) setup(fd int, addr netip.Addr, o Options) {
	c.caps = packetconn.Caps{Batch: true, KnownID: true, Poll: true}

	level, option := unix.IPPROTO_IP, unix.IP_RECVTOS
	if addr.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS
	}
	c.caps.ECN = unix.SetsockoptInt(fd, level, option, 1) == nil

	// A kernel without UDP_SEGMENT (before 4.18) refuses the option, and one
	// without UDP_GRO (before 5.0) that one.
	switch {
	case o.NoGSO:
		c.caps.Degraded = "GSO is switched off"
	case unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) != nil:
		c.caps.Degraded = "the kernel has no UDP_SEGMENT"
	default:
		c.caps.GSO = true
	}
	if addr.Is6() {
		// Linux's soft-RoCE leaves UDP's checksum over IPv6 out, which the kernel
		// drops unless it is told not to. The invariant CRC covers the packet.
		_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
	if !o.NoGRO && unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil {
		c.caps.GRO = true
	}

	// The FORCE options need CAP_NET_ADMIN and pass the sysctl limits.
	c.caps.RecvBuffer = buffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, o.Buffer)
	c.caps.SendBuffer = buffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, o.Buffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1) // a count for reports
}

// buffer asks for a socket buffer of n bytes and returns what was granted. The
// kernel doubles what is asked for, to allow for its own overhead, and reports
// the double.
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

// knownSegments remembers what segments found out.
var knownSegments atomic.Int32

// segments returns how many datagrams a GSO call takes. The kernel does not tell;
// a call with too many is refused before anything is sent, so a socket of our own
// that sends to itself tells.
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
	return minSegments, false // no loopback interface, or it is down
}

// pathMTU asks the kernel for the MTU of a route.
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
	// Any port does: connecting a UDP socket sends nothing.
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(peer, 9))); err != nil {
		return 0, err
	}
	mtu, err := unix.GetsockoptInt(fd, level, option)
	if err == unix.ENOPROTOOPT { // something that is not quite Linux, such as qemu-user
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

// zones turns addresses into the kernel's form and back. Both directions remember
// the last zone, because asking the system for a name takes system calls; one
// entry is enough where all peers of a socket sit on one link.
type zones struct {
	mu   sync.Mutex
	name string
	id   uint32
}

// put writes a into s and returns its length.
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

// take reads the address that the kernel wrote into s.
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

// zoneID returns the index of the interface that a zone names, or the zone itself
// if it is a number; 0 if it is neither.
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

// A port lies in network order in a field of the machine's order.
func putPort(p *uint16, port uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(port>>8), byte(port)
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}
