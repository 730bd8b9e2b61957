package roce

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fifo"
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

// GSI is a port's general services interface, QP 1. All methods are safe for concurrent use.
type GSI struct {
	port *Port
	qp   *QP
	recv func(Datagram)
	in   gsiBuffer // guarded by the lock of qp

	mu     sync.Mutex // guards the following fields
	closed bool
	queue  fifo.Queue[*Work] // datagrams to send
}

// gsiHandler is the Handler of QP 1, without adding methods to GSI.
type gsiHandler GSI

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

// OpenGSI makes QP 1. It calls recv for every datagram that arrives there with the right Q_Key. recv is called with a lock
// held, so it must return quickly; it may keep the payload and may call Send. OpenGSI returns EBUSY if the port has a
// QP 1, and net.ErrClosed on a closed Port. Closing the Port does not require closing its GSI first.
func (p *Port) OpenGSI(recv func(Datagram)) (*GSI, error) {
	g := &GSI{port: p, recv: recv}
	q, err := p.NewQP((*gsiHandler)(g), ibv.GSI)
	if err != nil {
		return nil, err
	}
	g.qp = q
	if err := q.RTR(RecvConfig{MTU: maxDatagram}); err != nil {
		q.Close()
		return nil, err
	}
	return g, q.RTS(SendConfig{PSN: p.rand() & psnMask})
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
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return net.ErrClosed
	case g.queue.Len() >= maxGSIQueue:
		return failure.New(op, syscall.ENOBUFS, "%d datagrams wait to be sent", g.queue.Len())
	}
	g.queue.Push(w)
	g.qp.Wake()
	return nil
}

// Flush sends the queued datagrams and returns when the system has them, so that they leave even if the Port is closed
// next.
func (g *GSI) Flush() {
	p := g.port
	p.sending.Lock()
	defer p.wakeReady()
	defer p.sending.Unlock()
	for !p.ready.empty() {
		g.mu.Lock()
		sent := g.queue.Len() == 0
		g.mu.Unlock()
		if sent {
			return
		}
		p.round()
	}
}

// Close closes QP 1. recv is not called after Close has returned; Close must not be called from recv. Closing twice does
// nothing.
func (g *GSI) Close() {
	g.mu.Lock()
	g.closed, g.queue = true, fifo.Queue[*Work]{}
	g.mu.Unlock()
	g.qp.Close()
}

// sliceSource is a Source that reads from a byte slice.
type sliceSource []byte

func (s sliceSource) ReadAt(p []byte, off uint64) error {
	copy(p, s[off:])
	return nil
}

// Next implements Handler.
func (h *gsiHandler) Next() *Work {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queue.Len() == 0 {
		return nil
	}
	return h.queue.Pop()
}

// Received implements Handler.
func (h *gsiHandler) Received(ev RecvEvent) NAK {
	header, payload := h.in.b[:wire.GRHLen], h.in.b[wire.GRHLen:h.in.n]
	h.recv(Datagram{Src: ev.Src, Dst: wire.GRHDst(header), SrcQPN: ev.SrcQPN, PKey: wire.DefaultPKey, Payload: bytes.Clone(payload)})
	return NAKNone
}

// BeginRecv implements Handler.
func (h *gsiHandler) BeginRecv(uint32) (Sink, NAK) {
	h.in.n = 0
	return &h.in, NAKNone
}

// EndBatch implements Handler.
func (h *gsiHandler) EndBatch() NAK { return NAKNone }

// Completed implements Handler.
func (h *gsiHandler) Completed(_ *Work, st rdma.Status) rdma.Status { return st }

// The remaining methods of Handler are called only for QPs of other types.

func (h *gsiHandler) ReturnRecv()                                  {}
func (h *gsiHandler) OpenWrite(uint32, uint64, uint32) (Sink, NAK) { return nil, NAKInvalidRequest }
func (h *gsiHandler) EndWrite(Sink, bool) NAK                      { return NAKInvalidRequest }
func (h *gsiHandler) OpenRead(uint32, uint64, uint32, uint64) (Source, NAK) {
	return nil, NAKInvalidRequest
}
func (h *gsiHandler) EndRead(Source) uint64     { return 0 }
func (h *gsiHandler) Invalidate(uint32) error   { return NAKInvalidRequest.Err() }
func (h *gsiHandler) Failed(Failure)            {}
func (h *gsiHandler) Permits(ibv.WROp) bool     { return false }
func (h *gsiHandler) Established()              {}
func (h *gsiHandler) Retransmitted(_, _ uint32) {}
func (h *gsiHandler) Stalled(Stall)             {}
func (h *gsiHandler) Atomic(Atomic) (uint64, NAK) {
	return 0, NAKInvalidRequest
}
