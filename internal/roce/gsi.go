package roce

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// QP number and Q_Key of the general services interface, the same on every device.
const (
	gsiQPN  = 1
	gsiQKey = 0x80010000
)

// maxDatagram is the length of the longest datagram that the general services interface
// sends, in bytes. Management datagrams have 256.
const maxDatagram = 1024

// maxGSIQueue is the largest number of datagrams that wait to be sent.
const maxGSIQueue = 1024

// A Datagram is a received management datagram.
type Datagram struct {
	Src     netip.AddrPort // the sender's socket; RoCEv2 senders may use any port
	Dst     netip.Addr     // address of this port that it was sent to
	SrcQPN  uint32
	PKey    uint16
	Payload []byte
}

// GSI is one user of a port's general services interface, QP 1. Several users, for
// example connection managers, can share it: each receives every datagram and ignores
// those meant for the others. All methods are safe for concurrent use.
type GSI struct {
	port *Port
	recv func(Datagram)
}

// gsiUsers shares a port's QP 1 among its users and is the QP's Handler. The QP exists
// while there are users.
type gsiUsers struct {
	opening sync.Mutex // held while QP 1 is created or closed

	mu    sync.Mutex // guards the following fields
	qp    *QP
	users []*GSI
	queue []*Work // datagrams to send
	in    gsiBuffer
}

// gsiBuffer is the receive buffer of QP 1: a Sink for a global route header and a
// datagram.
type gsiBuffer struct {
	b [wire.GRHLen + largestMTU]byte
	n int
}

func (s *gsiBuffer) Write(p []byte) error {
	s.n += copy(s.b[s.n:], p)
	return nil
}

// OpenGSI returns a new user of QP 1. It calls recv for every datagram that arrives there
// with the right Q_Key. recv is called with a lock held, so it must return quickly; it
// may keep the payload and may call Send. OpenGSI returns EBUSY if NewQP created QP 1,
// and net.ErrClosed on a closed Port. Closing the Port does not require closing its GSI
// users first.
func (p *Port) OpenGSI(recv func(Datagram)) (*GSI, error) {
	u := &p.gsi
	u.opening.Lock()
	defer u.opening.Unlock()
	g := &GSI{port: p, recv: recv}
	u.mu.Lock()
	qp := u.qp
	u.mu.Unlock()
	if qp == nil {
		q, err := p.NewQP(u, ibv.GSI)
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

// Send queues a copy of payload as a datagram from QP 1 to a QP of another device,
// usually 1, with the Q_Key of the general services interface. It does not block. It
// returns EINVAL for more than 1024 bytes, ENOBUFS if too many datagrams are queued, and
// net.ErrClosed after Close or on a closed Port.
func (g *GSI) Send(to *AH, destQPN uint32, payload []byte) error {
	const op = "send a management datagram"
	if len(payload) > maxDatagram {
		return failure.New(op, syscall.EINVAL, "%d bytes: at most %d", len(payload), maxDatagram)
	}
	w := &Work{
		Op: ibv.WRSend, Length: uint32(len(payload)), Src: sliceSource(bytes.Clone(payload)),
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
	case !slices.Contains(u.users, g):
		return net.ErrClosed
	case len(u.queue) >= maxGSIQueue:
		return failure.New(op, syscall.ENOBUFS, "%d datagrams wait to be sent", len(u.queue))
	}
	u.queue = append(u.queue, w)
	u.qp.Wake()
	return nil
}

// Flush sends the queued datagrams of all users and returns when the system has them, so
// that they leave even if the Port is closed next.
func (g *GSI) Flush() {
	p := g.port
	u := &p.gsi
	p.sending.Lock()
	defer p.sending.Unlock()
	for !p.ready.empty() {
		u.mu.Lock()
		sent := len(u.queue) == 0
		u.mu.Unlock()
		if sent {
			return
		}
		p.round()
	}
}

// Close removes the user. recv is not called after Close has returned; Close must not be
// called from recv. Closing twice does nothing.
func (g *GSI) Close() error {
	u := &g.port.gsi
	u.opening.Lock()
	defer u.opening.Unlock()
	u.mu.Lock()
	i := slices.Index(u.users, g)
	if i < 0 {
		u.mu.Unlock()
		return nil
	}
	u.users = slices.Delete(slices.Clone(u.users), i, i+1) // Received may be calling the old ones
	qp, last := u.qp, len(u.users) == 0
	u.mu.Unlock()
	if !last {
		qp.State() // State takes the QP's lock, so it waits until a running call of recv has returned
		return nil
	}
	qp.Close()
	u.mu.Lock()
	u.qp, u.queue = nil, nil
	u.mu.Unlock()
	return nil
}

// sliceSource is a Source that reads from a byte slice.
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
	dst := wire.GRHDst(u.in.b[:wire.GRHLen])
	for _, g := range users {
		g.recv(Datagram{Src: ev.Src, Dst: dst, SrcQPN: ev.SrcQPN, PKey: wire.DefaultPKey, Payload: bytes.Clone(u.in.b[wire.GRHLen:u.in.n])})
	}
	return NAKNone
}

// BeginRecv implements Handler.
func (u *gsiUsers) BeginRecv() (Sink, NAK) {
	u.in.n = 0
	return &u.in, NAKNone
}

// Completed implements Handler.
func (u *gsiUsers) Completed(_ *Work, st rdma.Status) rdma.Status { return st }

// The remaining methods of Handler are called only for QPs of other types.

func (u *gsiUsers) ReturnRecv()                                  {}
func (u *gsiUsers) OpenWrite(uint32, uint64, uint32) (Sink, NAK) { return nil, NAKInvalidRequest }
func (u *gsiUsers) EndWrite(Sink, bool) NAK                      { return NAKInvalidRequest }
func (u *gsiUsers) OpenRead(uint32, uint64, uint32, uint64) (Source, NAK) {
	return nil, NAKInvalidRequest
}
func (u *gsiUsers) EndRead(Source) uint64   { return 0 }
func (u *gsiUsers) Invalidate(uint32) error { return NAKInvalidRequest.Err() }
func (u *gsiUsers) Failed(Failure)          {}
func (u *gsiUsers) Atomic(Atomic) (uint64, NAK) {
	return 0, NAKInvalidRequest
}
