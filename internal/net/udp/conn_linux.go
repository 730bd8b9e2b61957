package udp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
)

// batch is the number of messages per sendmmsg and recvmmsg. 64 trains have up to 4 MiB,
// more than a socket buffer holds without privilege. For 64 single datagrams, the cost of
// entering the kernel falls to a few nanoseconds each.
const batch = 64

// mmsghdr is the kernel's struct mmsghdr. Go adds the same padding as C.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // bytes sent or received
}

// slot holds the buffers of one message header: I/O vector, address and control messages.
// RawSockaddrInet6 is the larger of the two address types; an IPv4 address is written
// over its start.
type slot struct {
	iov     unix.Iovec
	name    unix.RawSockaddrInet6
	control [controlWords]uint64
}

// half is one direction of a socket: the arrays for its system calls, and the arguments
// of the current call. try is a method value that is bound once, because a closure per
// call would allocate.
type half struct {
	mu  sync.Mutex
	try func(fd uintptr) bool

	trains []packetconn.Train
	n      int   // number of trains received
	err    error // error that ended the call

	hdrs  [batch]mmsghdr
	slots [batch]slot
}

// conn is a UDP socket on Linux. Its descriptor is in blocking mode, outside of the
// runtime's network poller. In the poller, every datagram would wake a thread on another
// processor, at the cost of a datagram, even while Recv is not blocked.
type conn struct {
	file   *os.File
	raw    syscall.RawConn
	closed atomic.Bool
	local  netip.AddrPort
	opts   Options // with the defaults and the environment; the sockets of groups have the same
	limits packetconn.Limits
	zones  zones
	spin   spin // guarded by rx.mu
	wait   bool // guarded by rx.mu: the call is Recv, not Poll
	side   Side // nil: the socket is this process's alone

	caps     packetconn.Caps        // as granted when the socket was opened
	gso      atomic.Bool            // caps.GSO until GSO fails once
	degraded atomic.Pointer[string] // reason for which GSO failed
	drops    atomic.Uint32          // datagrams that the kernel dropped because the receive buffer was full

	tx    half
	rx    half
	plan  plan           // under tx.mu
	ahead [batch]message // under tx.mu

	sendmmsg func(fd uintptr, m []mmsghdr) (int, syscall.Errno) // tests replace it to inject errors
}

func listen(addr netip.AddrPort, o Options) (netconn.Conn, error) {
	c := &conn{sendmmsg: sendmmsg, spin: newSpin(), opts: o}
	if err := c.bind(addr, false); err != nil {
		return nil, listenError(addr, err)
	}
	if err := c.start(); err != nil {
		return nil, listenError(addr, err)
	}
	return c, nil
}

// bind opens a socket at addr. With reuse, several sockets can be bound to the address, provided
// that each is opened with reuse.
func (c *conn) bind(addr netip.AddrPort, reuse bool) error {
	network := "udp4"
	if addr.Addr().Is6() {
		network = "udp6"
	}
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		if err := dontFragment(rc, addr.Addr().Is4()); err != nil {
			return err
		}
		var err error
		cerr := rc.Control(func(fd uintptr) {
			if reuse {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			c.setup(int(fd), addr.Addr())
			sendGroupsFrom(int(fd), addr.Addr())
		})
		return errors.Join(cerr, err)
	}}
	pc, err := lc.ListenPacket(context.Background(), network, addr.String())
	if err != nil {
		return err
	}
	port := pc.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	c.local = netip.AddrPortFrom(addr.Addr(), port)
	c.file, err = blocking(pc.(*net.UDPConn))
	return err
}

// start makes c, whose file and local address are set, ready for use. It closes the file
// if it fails.
func (c *conn) start() (err error) {
	if c.raw, err = c.file.SyscallConn(); err != nil {
		c.file.Close()
		return err
	}
	ip := c.local.Addr()
	c.limits = packetconn.Limits{Datagrams: segments(), Bytes: netconn.MaxBytes(ip), Trains: batch}
	c.caps.MTU, _ = interfaceMTU(ip)
	c.gso.Store(c.caps.GSO)
	c.tx.try, c.rx.try = c.trySend, c.tryRecv
	return nil
}

// blocking returns the socket of pc in blocking mode, outside of the network poller, and
// closes pc.
func blocking(pc *net.UDPConn) (*os.File, error) {
	defer pc.Close()
	rc, err := pc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := unixsocket.Duplicate(rc)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "udp"), nil
}

func (c *conn) LocalAddr() netip.AddrPort { return c.local }

// SyscallConn implements syscall.Conn, for callers that wait for datagrams together with
// other descriptors, and then call Poll.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

func (c *conn) Limits() packetconn.Limits { return c.limits }

func (c *conn) ID(i int) uint16 {
	if c.gso.Load() {
		return uint16(i)
	}
	return 0
}

func (c *conn) Caps() packetconn.Caps {
	caps := c.caps
	if caps.GSO && !c.gso.Load() {
		caps.GSO = false
		caps.Degraded = *c.degraded.Load()
	}
	return caps
}

// Dropped returns the number of datagrams that the kernel dropped because the receive
// buffer was full. The kernel reports the number with the next datagram that arrives. The
// count wraps at 32 bits.
func (c *conn) Dropped() uint32 { return c.drops.Load() }

func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	if c.side != nil {
		c.side.Wake() // other processes may have the socket, so it is not shut down
		err := c.file.Close()
		c.rx.mu.Lock() // the side is not called after the last Recv has returned
		defer c.rx.mu.Unlock()
		return err
	}
	// Shutdown wakes blocked calls and keeps later calls from blocking. It returns
	// ENOTCONN, because the socket is not connected, but takes effect anyway.
	_ = c.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	return c.file.Close() // the descriptor is closed after the last call has returned
}

// Send implements Conn.
func (c *conn) Send(trains []packetconn.Train) (int, error) {
	if len(trains) == 0 {
		return 0, nil
	}
	h := &c.tx
	h.mu.Lock()
	defer h.mu.Unlock()
	// An invalid train ends the call after the trains before it.
	var refused error
	for i := range trains {
		if refused = c.limits.Check(c.local.Addr(), &trains[i]); refused != nil {
			trains = trains[:i]
			break
		}
	}
	c.plan = plan{}
	h.trains, h.err = trains, nil
	var err error
	if len(trains) > 0 {
		released()
		err = c.raw.Write(h.try)
	}
	h.trains = nil
	switch {
	case err != nil, c.closed.Load():
		return c.plan.train, net.ErrClosed
	case h.err != nil:
		return c.plan.train, h.err
	}
	return c.plan.train, refused
}

// trySend sends until all trains are sent or an error occurs. The system call blocks
// while the socket's buffer is full.
func (c *conn) trySend(fd uintptr) bool {
	h := &c.tx
	for {
		n := c.plan.fill(c.ahead[:], h.trains, c.gso.Load())
		if n == 0 {
			return true
		}
		for i := range n {
			c.put(i, &h.trains[c.ahead[i].train], c.ahead[i])
		}
		sent, errno := c.sendmmsg(fd, h.hdrs[:n])
		switch errno {
		case 0:
			for _, m := range c.ahead[:sent] {
				c.plan.done(m, h.trains)
			}
		case unix.EINTR, unix.EAGAIN:
		default:
			t, m := &h.trains[c.ahead[0].train], c.ahead[0]
			if errno == unix.EIO && m.seg != 0 {
				// The kernel returns EIO if the outgoing device cannot
				// compute UDP checksums, which GSO needs (udp_send_skb in
				// net/ipv4/udp.c).
				why := "GSO failed on the path to " + t.Addr.String() + ": its device has no checksum offload"
				c.degraded.CompareAndSwap(nil, &why)
				c.gso.Store(false)
				continue
			}
			h.err = c.sendError(t, m, errno)
			return true
		}
	}
}

// sendError returns the error for message m, which the system failed to send with errno.
func (c *conn) sendError(t *packetconn.Train, m message, errno syscall.Errno) error {
	// Kernels before 6.13 return EINVAL for segments larger than the MTU.
	if errno == unix.EMSGSIZE || (errno == unix.EINVAL && m.seg != 0) {
		mtu, err := PathMTU(c.local.Addr(), t.Addr.Addr())
		if err != nil {
			mtu = 0
		}
		if errno == unix.EMSGSIZE || mtu > 0 && len(t.At(0))+netconn.Headers(t.Addr.Addr()) > mtu {
			return netconn.TooLarge(t, mtu)
		}
	}
	return failure.New("udp send", errno, "%d bytes to %v: %s", m.n, t.Addr, errno.Error())
}

// put writes message m of train t into slot i.
func (c *conn) put(i int, t *packetconn.Train, m message) {
	hdr, s := &c.tx.hdrs[i].hdr, &c.tx.slots[i]
	s.iov.Base = unsafe.SliceData(t.Buf[m.off:])
	s.iov.SetLen(m.n)
	hdr.Iov = &s.iov
	hdr.SetIovlen(1)
	hdr.Name = (*byte)(unsafe.Pointer(&s.name))
	hdr.Namelen = c.zones.put(&s.name, t.Addr)
	n := 0
	if m.seg != 0 {
		n = putSegment(&s.control, n, uint16(m.seg))
	}
	if t.TOS != 0 {
		n = putTOS(&s.control, n, t.Addr.Addr().Is4(), t.TOS)
	}
	if t.Route.HopLimit != 0 {
		n = putHops(&s.control, n, t.Addr.Addr().Is4(), t.Route.HopLimit)
	}
	hdr.Control = nil
	if n > 0 {
		hdr.Control = (*byte)(unsafe.Pointer(&s.control))
	}
	hdr.SetControllen(n)
}

// Recv implements Conn.
func (c *conn) Recv(trains []packetconn.Train) (int, error) { return c.recv(trains, true) }

// Poll implements Conn.
func (c *conn) Poll(trains []packetconn.Train) (int, error) { return c.recv(trains, false) }

func (c *conn) recv(trains []packetconn.Train, wait bool) (int, error) {
	if len(trains) == 0 {
		return 0, nil
	}
	if err := netconn.CheckBuffers(trains[:min(len(trains), batch)]); err != nil {
		return 0, err
	}
	h := &c.rx
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trains, h.n, h.err = trains, 0, nil
	c.wait = wait
	err := c.raw.Read(h.try)
	h.trains = nil
	if err != nil || c.closed.Load() {
		return 0, net.ErrClosed
	}
	acquired()
	return h.n, h.err
}

// tryRecv receives the trains that have arrived. If there are none and the call is Recv,
// it waits.
func (c *conn) tryRecv(fd uintptr) bool {
	h := &c.rx
	n := min(len(h.trains), batch)
	c.prepare(n)
	c.spin.begin()
	for sleep := false; !c.closed.Load(); {
		if c.side != nil {
			if h.n = c.side.Poll(h.trains[:n]); h.n > 0 {
				c.spin.end()
				return true
			}
			c.prepare(n) // the side may have exchanged buffers
		}
		got, errno := recvmmsg(fd, h.hdrs[:n], sleep && c.side == nil)
		switch errno {
		case 0:
			c.spin.end()
			for i := range got {
				c.take(i, &h.trains[i])
			}
			if c.side != nil {
				if got = c.side.Own(h.trains[:got]); got == 0 {
					continue
				}
			}
			h.n = got
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			if !c.wait {
				return true
			}
			if sleep && c.side != nil {
				c.side.Wait()
			}
			// Let a goroutine that the last datagrams woke run first.
			runtime.Gosched()
			sleep = !c.spin.on()
		default:
			h.err = failure.New("udp receive", errno, "%s", errno.Error())
			return true
		}
	}
	return true
}

// prepare points the headers of the first n slots at the buffers of the trains.
func (c *conn) prepare(n int) {
	h := &c.rx
	for i := range n {
		hdr, s, buf := &h.hdrs[i].hdr, &h.slots[i], h.trains[i].Buf
		s.iov.Base = unsafe.SliceData(buf)
		s.iov.SetLen(cap(buf))
		hdr.Iov = &s.iov
		hdr.SetIovlen(1)
		hdr.Name = (*byte)(unsafe.Pointer(&s.name))
		hdr.Namelen = uint32(unsafe.Sizeof(s.name))
		hdr.Control = (*byte)(unsafe.Pointer(&s.control))
		hdr.SetControllen(int(unsafe.Sizeof(s.control)))
	}
}

// take moves the message received in slot i to t.
func (c *conn) take(i int, t *packetconn.Train) {
	m, s := &c.rx.hdrs[i], &c.rx.slots[i]
	t.Addr = c.zones.take(&s.name)
	if c.local.Addr().Zone() != "" {
		// A socket at a link-local address is bound to its link: peers need no zone.
		t.Addr = netip.AddrPortFrom(t.Addr.Addr().WithZone(""), t.Addr.Port())
	}
	t.Buf = t.Buf[:m.len]
	control := unsafe.Slice((*byte)(unsafe.Pointer(&s.control)), unsafe.Sizeof(s.control))
	a := parseControl(control[:min(uint64(m.hdr.Controllen), uint64(len(control)))])
	t.TOS, t.Route, t.Swap, t.Memory = a.tos, packetconn.Route{HopLimit: a.hops}, false, false
	t.Seg = a.seg
	if t.Seg <= 0 || t.Seg > len(t.Buf) {
		t.Seg = len(t.Buf)
	}
	if a.hasDrops {
		c.drops.Store(a.drops)
	}
}

// sendmmsg and recvmmsg first use a raw system call that does not block. A raw call does
// not notify the scheduler, which would cost as much as a small message, and occupies the
// processor for a few tens of microseconds at most. Only if they have to wait do they use
// a call that blocks and notifies the scheduler.

func sendmmsg(fd uintptr, m []mmsghdr) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EAGAIN {
		n, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_NOSIGNAL, 0, 0)
	}
	runtime.KeepAlive(m)
	return int(n), errno
}

func recvmmsg(fd uintptr, m []mmsghdr, wait bool) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EAGAIN && wait {
		n, _, errno = unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_WAITFORONE, 0, 0)
	}
	runtime.KeepAlive(m)
	return int(n), errno
}
