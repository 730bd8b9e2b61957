package share

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/packetconn"
)

// mostSenders limits the connections to an inbox.
const mostSenders = 2 * numbers

// inbox takes the packets that other processes hand over. They connect to the socket named after this process's number,
// or to one named after a service that it has claimed. Both ends see each other's credentials before a packet moves. Only Poll uses an inbox, apart from open and close.
type inbox struct {
	events *os.File // an epoll descriptor with all of the following

	mu        sync.Mutex // guards listeners
	listeners []int

	senders []int // accepted connections
	first   int   // index of the sender that is asked first
}

// open makes an inbox without listeners, whose descriptor events is readable when it has something.
func (x *inbox) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create", err)
	}
	x.events = os.NewFile(uintptr(fd), "epoll")
	return nil
}

// watch makes events readable when fd is.
func (x *inbox) watch(fd int) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(x.events.Fd()), unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}))
}

// ready reports whether accept or receive has something to do.
func (x *inbox) ready() bool {
	var e [1]unix.EpollEvent
	n, err := unix.EpollWait(int(x.events.Fd()), e[:], 0)
	return n > 0 || err == unix.EINTR
}

// listen adds a listener, and returns the descriptor that takes the place of l. An abstract name ends with
// the last descriptor of its socket.
func (x *inbox) listen(l *net.UnixListener) (fd int, err error) {
	fd, err = descriptor(l) // a duplicate, non-blocking like l's own descriptor
	l.Close()
	if err != nil {
		return -1, err
	}
	if err := x.watch(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listeners = append(x.listeners, fd)
	return fd, nil
}

// end closes a listener.
func (x *inbox) end(fd int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := slices.Index(x.listeners, fd); i >= 0 {
		x.listeners = slices.Delete(x.listeners, i, i+1)
		unix.Close(fd)
	}
}

// close closes all connections.
func (x *inbox) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, fd := range append(x.listeners, x.senders...) {
		unix.Close(fd)
	}
	x.listeners, x.senders = nil, nil
	closeAll([]*os.File{x.events})
}

// accept accepts the connections of other processes of the user.
func (x *inbox) accept() {
	if !x.ready() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.listeners {
		for range numbers {
			fd, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if err != nil {
				break
			}
			if _, err := oursAt(fd); err != nil || len(x.senders) >= mostSenders || x.watch(fd) != nil {
				unix.Close(fd)
				continue
			}
			x.senders = append(x.senders, fd)
		}
	}
}

// handHeader is the length of the header of a message to another process's inbox: the flag that
// only the process with the claim keeps the packet, the type of service, the length of a
// datagram (2 bytes, 0 for one of 64 KiB), the source's UDP port (2), address (16) and zone (16).
const handHeader = 1 + 1 + 2 + 2 + 16 + 16

// receive receives a message into t, and reports whether there was one.
func (x *inbox) receive(m *member, t *packetconn.Train) bool {
	for range len(x.senders) {
		if x.first >= len(x.senders) {
			x.first = 0
		}
		fd := x.senders[x.first]
		for range pollEvery { // broken messages are passed over
			var h [handHeader]byte
			buf := t.Buf[:packetconn.RecvSize]
			n, _, flags, _, err := unix.RecvmsgBuffers(fd, [][]byte{h[:], buf}, nil, unix.MSG_DONTWAIT)
			if err == unix.EAGAIN || err == unix.EINTR {
				break
			}
			if err != nil || n == 0 { // the other process has ended, or has no more for a service
				unix.Close(fd)
				x.senders = slices.Delete(x.senders, x.first, x.first+1)
				x.first--
				break
			}
			if n <= handHeader || flags&unix.MSG_TRUNC != 0 {
				continue
			}
			t.Buf = buf[:n-handHeader]
			if h[0] != 0 {
				r, ok := madOf(t.Buf)
				if !ok || !r.Request || !m.claimed(r.ServiceID) {
					continue
				}
			}
			ip := netip.AddrFrom16([16]byte(h[6:22])).Unmap()
			if zone := unix.ByteSliceToString(h[22:]); zone != "" && ip.Is6() {
				ip = ip.WithZone(zone)
			}
			*t = packetconn.Train{
				Addr: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(h[4:])), Buf: t.Buf, Seg: int(binary.BigEndian.Uint16(h[2:])), TOS: h[1],
			}
			if t.Seg == 0 || t.Seg > len(t.Buf) {
				t.Seg = len(t.Buf)
			}
			return true
		}
		x.first++
	}
	return false
}

// outbox is the connections to the inboxes of other processes.
type outbox struct {
	mu  sync.Mutex
	fds map[int]int // by the number of the process
}

// close closes all connections.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, fd := range o.fds {
		unix.Close(fd)
	}
	o.fds = nil
}

// hand sends packets to the process with a number, and reports whether it exists. Packets are
// lost if its inbox is full, as on a network.
func (m *member) hand(number int, t *packetconn.Train) bool {
	o := &m.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	if fd, ok := o.fds[number]; ok {
		if send(fd, t, false) {
			return true
		}
		unix.Close(fd) // it has ended; another process may have the number
		delete(o.fds, number)
	}
	c, err := find(m.name(number, "inbox"))
	if err != nil {
		return false
	}
	fd, err := descriptor(c)
	c.Close()
	if err != nil {
		return true // no free descriptors: lost
	}
	if o.fds == nil {
		o.fds = make(map[int]int)
	}
	o.fds[number] = fd
	send(fd, t, false)
	return true
}

// handClaimed sends packets to the process that has claimed a service, and reports whether there is one.
func (m *member) handClaimed(serviceID uint64, t *packetconn.Train) bool {
	c, err := find(m.service(serviceID))
	if err != nil {
		return false
	}
	defer c.Close()
	if fd, err := descriptor(c); err == nil {
		send(fd, t, true)
		unix.Close(fd)
	}
	return true
}

// send sends packets through a connection, and reports whether its other end is open.
func send(fd int, t *packetconn.Train, ifClaimed bool) bool {
	var h [handHeader]byte
	if ifClaimed {
		h[0] = 1
	}
	h[1] = t.TOS
	binary.BigEndian.PutUint16(h[2:], uint16(t.Seg))
	binary.BigEndian.PutUint16(h[4:], t.Addr.Port())
	a := t.Addr.Addr().As16()
	copy(h[6:], a[:])
	copy(h[22:], t.Addr.Addr().Zone())
	_, err := unix.SendmsgBuffers(fd, [][]byte{h[:], t.Buf}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err != unix.EPIPE && err != unix.ECONNRESET && err != unix.ENOTCONN
}
