package share

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// idle is the udp.Side of the socket of QP 1, for which no other process hands over datagrams.
type idle struct{}

func (idle) Poll([]packetconn.Train) int       { return 0 }
func (idle) Own(trains []packetconn.Train) int { return len(trains) }
func (idle) Wait()                             {}
func (idle) Wake()                             {}

// pollEvery is how often Poll checks the inbox and the socket of QP 1 while datagrams arrive
// without a pause: once in pollEvery calls.
const pollEvery = 16

// Poll implements udp.Side.
func (m *member) Poll(trains []packetconn.Train) int {
	if m.turns++; m.near != nil && m.turns <= ringTurns {
		if n := m.near.poll(trains); n > 0 {
			return n
		}
	}
	m.turns = 0
	if m.skipped++; !m.arrived && (m.skipped < pollEvery || !m.shared.Load()) {
		return 0
	}
	m.arrived, m.skipped = false, 0
	n := 0
	m.inbox.accept() // also of an address that is not shared: Wait would not sleep while a stranger waits
	for n < (len(trains)+1)/2 && m.inbox.receive(m, &trains[n]) {
		n++
	}
	if !m.shared.Load() {
		return n
	}
	got, err := m.mads.Poll(trains[n:])
	if err != nil {
		return n
	}
	return n + m.Own(trains[n:n+got])
}

// Own implements udp.Side.
func (m *member) Own(trains []packetconn.Train) int {
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
func (m *member) keepOwn(t *packetconn.Train) bool {
	count := t.Count()
	if count == 1 {
		return m.keep(t, t.Buf)
	}
	own := 0
	for own < count && m.numberOf(t.At(own)) == m.number {
		own++
	}
	if own == count {
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
		part := packetconn.Train{Addr: t.Addr, Buf: run, Seg: min(t.Seg, len(run)), TOS: t.TOS}
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
func (m *member) keep(t *packetconn.Train, b []byte) bool {
	switch number := m.numberOf(b); {
	case number == m.number:
		return true
	case number >= 0:
		m.hand(number, t)
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
func (m *member) keepMAD(t *packetconn.Train, b []byte) bool {
	r, ok := madOf(b)
	if !ok {
		return true
	}
	if !r.Request {
		number := int(r.ID >> idShift)
		return number == m.number || !m.hand(number, t)
	}
	return m.claimed(r.ServiceID) || !m.handClaimed(r.ServiceID, t)
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
