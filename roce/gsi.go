package roce

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/wire"
	"github.com/softmkey/softmkey/operr"
)

// The general services interface: a QP number and Q_Key that every device has.
const (
	gsiQPN  = 1
	gsiQKey = 0x80010000
)

// maxDatagram is the longest datagram of the general services interface. Management
// datagrams have 256 bytes.
const maxDatagram = 1024

// maxGSIQueue is the number of datagrams that may wait to be sent.
const maxGSIQueue = 1024

// A Datagram is a management datagram that arrived.
type Datagram struct {
	Src     netip.AddrPort // the sender's socket; RoCEv2 senders may use any port
	SrcQPN  uint32
	PKey    uint16
	Payload []byte
}

// GSI is one user of a port's general services interface, which is QP 1. Several users
// share it, such as connection managers: each gets every datagram that arrives and
// ignores those of others. All methods are safe for concurrent use.
type GSI struct {
	port *Port
	recv func(Datagram)
}

// gsiUsers are the users of a port's QP 1, which exists while there are any. It is the
// QP's Handler.
type gsiUsers struct {
	opening sync.Mutex // held while QP 1 is made or closed

	mu    sync.Mutex // guards the following fields
	qp    *QP
	users []*GSI
	queue []*Work // to be sent
	in    gsiBuffer
}

// gsiBuffer is the receive buffer of QP 1: a Sink for a GRH and a datagram.
type gsiBuffer struct {
	b [wire.GRHLen + 4096]byte
	n int
}

func (s *gsiBuffer) Write(p []byte) error {
	s.n += copy(s.b[s.n:], p)
	return nil
}

// OpenGSI makes a user of QP 1, which recv is called for with every datagram that arrives
// there with the right Q_Key. recv is called with a lock held: it hands the datagram over
// and returns; it may keep the payload, and may call Send. OpenGSI returns EBUSY if the QP
// was made with NewQP, and net.ErrClosed on a closed Port. An open GSI does not keep the
// port from closing.
func (p *Port) OpenGSI(recv func(Datagram)) (*GSI, error) {
	u := &p.gsi
	u.opening.Lock()
	defer u.opening.Unlock()
	g := &GSI{port: p, recv: recv}
	u.mu.Lock()
	qp := u.qp
	u.mu.Unlock()
	if qp == nil {
		q, err := p.NewQP(u, TypeGSI)
		if err != nil {
			return nil, err
		}
		if err := q.RTR(RecvConfig{MTU: maxDatagram}); err != nil {
			q.Close()
			return nil, err
		}
		u.mu.Lock()
		u.qp, u.users = q, []*GSI{g}
		u.mu.Unlock()
		return g, q.RTS(SendConfig{PSN: p.rand() & psnMask})
	}
	u.mu.Lock()
	u.users = append(u.users, g)
	u.mu.Unlock()
	return g, nil
}

// Send sends a datagram from QP 1 to a QP of another device, 1 in most cases, with the
// Q_Key of the general services interface. It copies the payload and does not wait. It
// returns EINVAL for more than 1024 bytes, ENOBUFS when too many datagrams wait to be
// sent, and net.ErrClosed after Close or on a closed Port.
func (g *GSI) Send(to *AH, destQPN uint32, payload []byte) error {
	const op = "send a management datagram"
	if len(payload) > maxDatagram {
		return operr.New(op, syscall.EINVAL, "%d bytes: at most %d", len(payload), maxDatagram)
	}
	w := &Work{
		Op: OpSend, Length: uint32(len(payload)), Src: sliceSource(bytes.Clone(payload)),
		AH: to, DestQPN: destQPN, QKey: gsiQKey,
	}
	select {
	case <-g.port.done:
		return net.ErrClosed
	default:
	}
	u := &g.port.gsi
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.find(g) < 0:
		return net.ErrClosed
	case len(u.queue) >= maxGSIQueue:
		return operr.New(op, syscall.ENOBUFS, "%d datagrams wait to be sent", len(u.queue))
	}
	u.queue = append(u.queue, w)
	u.qp.Wake()
	return nil
}

// Close ends the use. recv is not called any more when it has returned; it must not be
// called from recv. Closing twice does nothing.
func (g *GSI) Close() error {
	u := &g.port.gsi
	u.opening.Lock()
	defer u.opening.Unlock()
	u.mu.Lock()
	i := u.find(g)
	if i < 0 {
		u.mu.Unlock()
		return nil
	}
	users := append([]*GSI(nil), u.users[:i]...)
	u.users = append(users, u.users[i+1:]...)
	qp, last := u.qp, len(u.users) == 0
	u.mu.Unlock()
	if !last {
		qp.State() // takes the lock under which recv is called
		return nil
	}
	qp.Close()
	u.mu.Lock()
	u.qp, u.queue = nil, nil
	u.mu.Unlock()
	return nil
}

// find returns the index of g among the users, -1 if it is none. u.mu is held.
func (u *gsiUsers) find(g *GSI) int {
	for i, e := range u.users {
		if e == g {
			return i
		}
	}
	return -1
}

// sliceSource is a Source of bytes.
type sliceSource []byte

func (s sliceSource) ReadAt(p []byte, off uint64) error {
	copy(p, s[off:])
	return nil
}

// Next implements Handler.
func (u *gsiUsers) Next() *Work {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.queue) == 0 {
		return nil
	}
	w := u.queue[0]
	u.queue[0] = nil
	u.queue = u.queue[1:]
	return w
}

// Received implements Handler.
func (u *gsiUsers) Received(ev RecvEvent) NAK {
	u.mu.Lock()
	users := u.users
	u.mu.Unlock()
	for _, g := range users {
		g.recv(Datagram{Src: ev.Src, SrcQPN: ev.SrcQPN, PKey: wire.DefaultPKey, Payload: bytes.Clone(u.in.b[wire.GRHLen:u.in.n])})
	}
	return NAKNone
}

// BeginRecv implements Handler.
func (u *gsiUsers) BeginRecv() (Sink, NAK) {
	u.in.n = 0
	return &u.in, NAKNone
}

// Completed implements Handler.
func (u *gsiUsers) Completed(_ *Work, st Status) Status { return st }

// The other methods of Handler are not called for datagrams.

func (u *gsiUsers) ReturnRecv()                                  {}
func (u *gsiUsers) OpenWrite(uint32, uint64, uint32) (Sink, NAK) { return nil, NAKInvalidRequest }
func (u *gsiUsers) EndWrite(Sink, bool) NAK                      { return NAKInvalidRequest }
func (u *gsiUsers) OpenRead(uint32, uint64, uint32, uint64) (Source, NAK) {
	return nil, NAKInvalidRequest
}
func (u *gsiUsers) EndRead(Source) uint64 { return 0 }
func (u *gsiUsers) Invalidate(uint32) NAK { return NAKInvalidRequest }
func (u *gsiUsers) Failed(Failure)        {}
func (u *gsiUsers) Atomic(Op, uint32, uint64, uint64, uint64) (uint64, NAK) {
	return 0, NAKInvalidRequest
}
