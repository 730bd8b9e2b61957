package roce

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// UDPPort is the port of RoCEv2.
const UDPPort = 4791

// MaxRdAtomic is the largest number of READs and atomics that a QP can have on
// their way, as requester or responder.
const MaxRdAtomic = 128

// MaxQP is the largest number of QPs on a port: few enough among 24-bit numbers
// that a free one is found by chance.
const MaxQP = 1 << 20

// DefaultWindow is the SendWindow and ReadWindow of Options that do not say.
const DefaultWindow = 2 << 20

// Options tune a [Port]. The zero value, and nil, mean the defaults.
type Options struct {
	// Rand returns random bits for QP numbers. Default: crypto/rand.
	Rand func() uint32

	// SendWindow is the number of bytes that may be on their way to one peer,
	// all QPs together, before it acknowledges; loss makes the window smaller
	// for a while. Default: DefaultWindow, or less if the socket's receive
	// buffer is small (the peer's may be too).
	SendWindow int

	// ReadWindow is the same for the data of RDMA READs on their way from one
	// peer. Default: DefaultWindow, or less if the socket's receive buffer is
	// small.
	ReadWindow int

	// ECN marks packets as ECN-capable (ECT(0)), so that switches mark them
	// rather than drop them.
	ECN bool
}

// Port is a device's connection to the network: one UDP socket and the QPs
// behind it.
//
// A receive goroutine takes packets in batches, and a transmit goroutine sends
// what nobody else does: retransmissions, and what waited for a window. Both
// end before Close returns.
type Port struct {
	conn  packetconn.Conn
	local netip.AddrPort
	rand  func() uint32
	now   func() int64 // nanoseconds since some moment, never 0

	n      counters
	qps    qpTable
	timers timers
	ready  readyQueue

	in inbox

	sending sync.Mutex // held by whoever builds packets and sends them, so that they leave in order
	builder *builder   // guarded by sending

	wakeup chan struct{} // for the transmit goroutine
	done   chan struct{} // closed by Close
	wg     sync.WaitGroup

	outLimit, inLimit int64        // of peers' windows
	earlyBytes        atomic.Int64 // of packets that QPs keep

	mu     sync.Mutex // guards the following fields
	closed bool
	peers  map[netip.Addr]*peer

	gsi gsiUsers
}

// A peer is a host that QPs are connected to. The windows are the host's, not a
// QP's, because the socket that they are there for is.
type peer struct {
	addr  netip.Addr
	qps   int          // connected to it, guarded by the port's lock
	out   window       // requests on their way there
	in    window       // data of READs on its way here
	heard atomic.Int64 // when it acknowledged something last
}

// Listen opens a UDP socket at addr and a Port on it. Port 0 of addr picks a
// free one, for tests: RoCEv2 is spoken on UDPPort.
func Listen(addr netip.AddrPort, opts *Options) (*Port, error) {
	conn, err := udp.Listen(addr, nil)
	if err != nil {
		return nil, err
	}
	return NewPort(conn, opts), nil
}

// minWindow is what a window cannot go below: two of the largest packets.
// firstWindow is what it begins with: who knows what the path can take.
const (
	minWindow   = 2 * (4096 + packetCost)
	firstWindow = 256 << 10
)

// NewPort makes a Port on conn and owns it from then on.
func NewPort(conn packetconn.Conn, opts *Options) *Port {
	p := newPort(conn, opts)
	p.wg.Go(p.receive)
	p.wg.Go(p.transmit)
	return p
}

// newPort makes a Port whose goroutines do not run: nothing moves but by
// calling take, round and expire.
func newPort(conn packetconn.Conn, opts *Options) *Port {
	var o Options
	if opts != nil {
		o = *opts
	}
	def := int64(DefaultWindow)
	if n := conn.Caps().RecvBuffer; n > 0 {
		// Half of the buffer: the system's own overhead comes on top of
		// packetCost.
		def = min(def, int64(n)/2)
	}
	start := time.Now()
	p := &Port{
		conn:   conn,
		local:  conn.LocalAddr(),
		rand:   o.Rand,
		now:    func() int64 { return int64(time.Since(start)) + 1 },
		wakeup: make(chan struct{}, 1),
		done:   make(chan struct{}),
		peers:  make(map[netip.Addr]*peer),
	}
	if p.rand == nil {
		p.rand = randomBits
	}
	orDefault := func(n int) int64 {
		if n > 0 {
			return int64(n)
		}
		return def
	}
	p.outLimit, p.inLimit = orDefault(o.SendWindow), orDefault(o.ReadWindow)
	p.in.init()
	p.qps.init()
	p.timers.init(p.wakeup)
	p.ready.init()
	var tos byte
	if o.ECN {
		tos = 2 // ECT(0)
	}
	p.builder = newBuilder(conn, tos)
	return p
}

// randomBits reads from crypto/rand, which does not fail.
func randomBits() uint32 {
	var b [4]byte
	rand.Read(b[:])
	return binary.NativeEndian.Uint32(b[:])
}

// LocalAddr returns the address of the socket.
func (p *Port) LocalAddr() netip.AddrPort { return p.local }

// Caps returns what the system grants to the socket, for reports.
func (p *Port) Caps() packetconn.Caps { return p.conn.Caps() }

// Counters returns what the port has done so far.
func (p *Port) Counters() Counters { return p.n.snapshot() }

// NewQP makes a QP in RESET with a random number. It returns net.ErrClosed on a closed
// Port, EINVAL for an unknown type, and ENOMEM when there are MaxQP already. TypeGSI has
// the number 1; a second one on the port is EBUSY.
func (p *Port) NewQP(h Handler, t Type) (*QP, error) {
	const op = "roce new QP"
	service, ok := services[t]
	if !ok {
		return nil, operr.New(op, syscall.EINVAL, "type %d: must be that of an RC, UC, UD, GSI or XRC queue pair", uint8(t))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.qps.len() >= MaxQP {
		return nil, operr.New(op, syscall.ENOMEM, "%d QPs: no more on one port", MaxQP)
	}
	if t == TypeGSI {
		q := &QP{port: p, h: h, typ: t, service: service, num: gsiQPN}
		if !p.qps.add(q) {
			return nil, operr.New(op, syscall.EBUSY, "QP 1 is in use")
		}
		return q, nil
	}
	for {
		q := &QP{port: p, h: h, typ: t, service: service, num: p.rand() & psnMask}
		// 0 and 1 are the management QPs, the last is multicast.
		if q.num > 1 && q.num != psnMask && p.qps.add(q) {
			return q, nil
		}
	}
}

// Close closes the socket, waits for the port's goroutines and closes every QP.
// Closing twice returns net.ErrClosed.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return net.ErrClosed
	}
	p.closed = true
	p.mu.Unlock()
	err := p.conn.Close()
	close(p.done)
	p.wg.Wait()
	for _, q := range p.qps.all() {
		q.Close()
	}
	// Whoever called Kick may be sending still, to a closed socket.
	p.sending.Lock()
	defer p.sending.Unlock()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// acquirePeer returns the peer with an address, for one more QP.
func (p *Port) acquirePeer(addr netip.Addr) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.peers[addr]
	if e == nil {
		e = &peer{addr: addr}
		e.out.init(min(p.outLimit, firstWindow), p.outLimit)
		e.in.init(min(p.inLimit, firstWindow), p.inLimit)
		p.peers[addr] = e
	}
	e.qps++
	return e
}

// releasePeer gives a peer back.
func (p *Port) releasePeer(e *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.qps--; e.qps == 0 {
		delete(p.peers, e.addr)
	}
}
