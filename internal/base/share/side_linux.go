package share

import (
	"encoding/binary"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/mad"
	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/internal/base/wire"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// idle is the udp.Side of the socket of QP 1, for which no other process hands over datagrams.
type idle struct{}

func (idle) Poll([]packetconn.Datagrams) int       { return 0 }
func (idle) Own(trains []packetconn.Datagrams) int { return len(trains) }
func (idle) Wait()                                 {}
func (idle) Wake()                                 {}

// pollEvery is how often Poll checks the inbox and the socket of QP 1 while datagrams arrive
// without a pause: once in pollEvery calls.
const pollEvery = 16

// Poll implements udp.Side.
func (m *member) Poll(trains []packetconn.Datagrams) int {
	if m.near != nil {
		if n := m.near.poll(trains); n > 0 {
			return n
		}
	}
	if !m.shared.Load() {
		return 0
	}
	if m.skipped++; !m.arrived && m.skipped < pollEvery {
		return 0
	}
	m.arrived, m.skipped = false, 0
	n := 0
	for n < (len(trains)+1)/2 && m.handed(&trains[n]) {
		n++
	}
	got, err := m.mads.Poll(trains[n:])
	if err != nil {
		return n
	}
	return n + m.Own(trains[n:n+got])
}

// Own implements udp.Side.
func (m *member) Own(trains []packetconn.Datagrams) int {
	if !m.shared.Load() {
		return len(trains)
	}
	n := 0
	for i := range trains {
		if m.keepOwn(&trains[i]) {
			trains[n], trains[i] = trains[i], trains[n]
			n++
		}
	}
	return n
}

// Wait implements udp.Side.
func (m *member) Wait() {
	if m.near != nil && m.near.sleep() {
		return
	}
	var events [4]unix.EpollEvent
	n, err := unix.EpollWait(int(m.events.Fd()), events[:], -1)
	if err != nil {
		return
	}
	for _, e := range events[:n] {
		m.arrived = m.arrived || e.Fd == besides
	}
}

// The marks of epoll events tell which descriptor is readable.
const (
	socket  = 0 // the socket of the process's number, or the eventfd of Wake
	besides = 1 // the inbox, or the socket of QP 1
	rung    = 2 // the socket of a ring from another process
	hungUp  = 3 // the socket of a ring to another process
)

// await adds a descriptor to those that Wait waits for.
func (m *member) await(f *os.File, mark int32) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: mark}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(int(m.events.Fd()), unix.EPOLL_CTL_ADD, int(f.Fd()), &e))
}

// Wake implements udp.Side.
func (m *member) Wake() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	unix.Write(int(m.wakeup.Fd()), one) // never read, so that Wait does not block any more
}

// numberOf returns the number of the process that a packet is for, or -1 if any process may look
// at it.
func (m *member) numberOf(b []byte) int {
	if len(b) < wire.MinPacket {
		return -1
	}
	qpn := binary.BigEndian.Uint32(b[4:]) & 0xffffff
	if qpn == gsiQPN {
		return -1
	}
	return int(qpn >> memberShift)
}

// keepOwn hands over the packets of t that belong to others, and reports whether any are left.
func (m *member) keepOwn(t *packetconn.Datagrams) bool {
	count := t.Count()
	if count == 1 {
		return m.keep(t, t.Buf)
	}
	all := true
	for i := range count {
		if m.numberOf(t.At(i)) != m.number {
			all = false
			break
		}
	}
	if all {
		return true
	}
	if !m.mixed.Swap(true) {
		m.stopGRO()
	}
	kept := 0
	for i := 0; i < count; {
		first, number := i, m.numberOf(t.At(i))
		// A run of packets for one process is handed over as one train.
		for i++; i < count && number >= 0 && m.numberOf(t.At(i)) == number; i++ {
		}
		run := t.Buf[first*t.Seg : min(i*t.Seg, len(t.Buf))]
		part := packetconn.Datagrams{Addr: t.Addr, Buf: run, Seg: min(t.Seg, len(run)), TOS: t.TOS}
		if m.keep(&part, run) {
			kept += copy(t.Buf[kept:], run)
		}
	}
	t.Buf = t.Buf[:kept]
	t.Seg = min(t.Seg, kept)
	return kept > 0
}

// keep reports whether the packets of t are for this process, and hands them over to their
// process if not. All of them are for the same process as the first one, b.
func (m *member) keep(t *packetconn.Datagrams, b []byte) bool {
	switch number := m.numberOf(b); {
	case number == m.number:
		return true
	case number >= 0:
		m.hand(number, t, false)
		return false
	}
	return m.keepMAD(t, b)
}

// The place of a MAD in a packet: after the base and the datagram extended transport header, and
// before the invariant CRC.
const (
	madStart = 12 + 8
	madEnd   = 4
)

// keepMAD is keep for a packet that any process may inspect. This process keeps a packet that
// belongs to no process, and answers that the id or the service does not exist.
func (m *member) keepMAD(t *packetconn.Datagrams, b []byte) bool {
	r, ok := madOf(b)
	if !ok {
		return true
	}
	if !r.Request {
		number := int(r.ID >> idShift)
		return number == m.number || !m.hand(number, t, false)
	}
	if m.claimed(r.ServiceID) || !exists(m.service(r.ServiceID)) {
		return true
	}
	// The name of a claim does not tell which process made it.
	for number := range numbers {
		if number != m.number {
			m.hand(number, t, true)
		}
	}
	return false
}

// madOf returns the receiver that the MAD in a packet to QP 1 names.
func madOf(b []byte) (r mad.Receiver, ok bool) {
	if len(b) < madStart+madEnd {
		return r, false
	}
	return mad.ReceiverOf(b[madStart : len(b)-madEnd])
}

// stopGRO switches GRO off at the sockets of all processes: the kernel asks any one of them
// before it puts packets together.
func (m *member) stopGRO() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.sockets {
		udp.StopGRO(f)
	}
}

// handHeader is the length of the header of a message to another process's inbox: the flag that
// only the process with the claim keeps the packet, the type of service, the length of a
// datagram (2 bytes, 0 for one of 64 KiB), the source's UDP port (2), address (16) and zone (16).
const handHeader = 1 + 1 + 2 + 2 + 16 + 16

// hand sends packets to the process with a number, and reports whether it exists. Packets are
// lost if its inbox is full, as on a network.
func (m *member) hand(number int, t *packetconn.Datagrams, ifClaimed bool) bool {
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
	to := &unix.SockaddrUnix{Name: m.name(number, "inbox")}
	_, err := unix.SendmsgBuffers(int(m.inbox.Fd()), [][]byte{h[:], t.Buf}, nil, to, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err != unix.ECONNREFUSED && err != unix.ENOENT
}

// handed receives a message from the inbox into t, and reports whether there was one.
func (m *member) handed(t *packetconn.Datagrams) bool {
	for range pollEvery { // others' messages and broken ones are passed over
		var h [handHeader]byte
		buf := t.Buf[:packetconn.RecvSize]
		oob := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
		n, oobn, flags, _, err := unix.RecvmsgBuffers(int(m.inbox.Fd()), [][]byte{h[:], buf}, oob, unix.MSG_DONTWAIT)
		if err != nil {
			return false
		}
		if n <= handHeader || flags&unix.MSG_TRUNC != 0 || !sentByUs(oob[:oobn]) {
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
		if zone := string(h[22 : 22+length(h[22:])]); zone != "" && ip.Is6() {
			ip = ip.WithZone(zone)
		}
		*t = packetconn.Datagrams{
			Addr: netip.AddrPortFrom(ip, binary.BigEndian.Uint16(h[4:])), Buf: t.Buf, Seg: int(binary.BigEndian.Uint16(h[2:])), TOS: h[1],
		}
		if t.Seg == 0 || t.Seg > len(t.Buf) {
			t.Seg = len(t.Buf)
		}
		return true
	}
	return false
}

// length returns the number of bytes before the first zero.
func length(b []byte) int {
	for i, c := range b {
		if c == 0 {
			return i
		}
	}
	return len(b)
}

// sentByUs reports whether the control messages of a datagram name this process's user.
func sentByUs(oob []byte) bool {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(list) == 0 {
		return false
	}
	c, err := unix.ParseUnixCredentials(&list[0])
	return err == nil && int(c.Uid) == os.Geteuid()
}
