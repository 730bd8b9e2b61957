package roce

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/lookup"
	"github.com/softmkey/softmkey/internal/base/random"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// UDPPort is the UDP port of RoCEv2.
const UDPPort = 4791

// MaxRdAtomic is the largest number of READs and atomics that a QP can have outstanding,
// as requester or as responder.
const MaxRdAtomic = 128

// MaxQP is the largest number of QPs on a port. It is small compared with the 2^24
// numbers, so NewQP finds a free random number after few attempts. A port whose address is
// shared with other processes ([netconn.Member]) has 2^18 numbers, and at most half as many
// QPs.
const MaxQP = 1 << 20

// DefaultWindow is the default of Options.SendWindow and Options.ReadWindow, in bytes.
const DefaultWindow = 2 << 20

// Options configure a [Port]. A nil *Options and the zero value select the defaults.
type Options struct {
	// Rand is called for random bits for QP numbers. Default: crypto/rand.
	Rand func() uint32

	// SendWindow is the largest number of bytes of requests in flight to one peer,
	// counted over all QPs; after losses the limit is smaller for a while. Default:
	// DefaultWindow, or half of the socket's receive buffer if that is less, because
	// the peer's buffer may be as small.
	SendWindow int

	// ReadWindow is the largest number of bytes of READ responses in flight from one
	// peer. Default: DefaultWindow, or half of the socket's receive buffer if that is
	// less.
	ReadWindow int

	// UnreliableRate is the rate in bytes per second at which all UC and UD QPs of the
	// port send together. Nobody acknowledges their packets, so the sender does not know
	// whether the receiver keeps up. Default: 100 to 400 MB/s, by the size of the
	// socket's receive buffer, because the peer's is probably as large. A negative rate
	// is unlimited.
	UnreliableRate int64

	// Conns are further sockets of the port, one for each further entry of its
	// GID table: RecvConfig.SGIDIndex 1 and so on. Entry 0 is the socket that
	// is passed to NewPort.
	Conns []packetconn.Conn

	// NotECT leaves the ECN bits of sent packets 0. Otherwise packets are marked as ECN-capable
	// (ECT(0)), as adapters mark them, so that congested switches mark them instead of dropping
	// them.
	NotECT bool

	// StrictTimeouts leaves the recovery of lost last packets to the local ACK timeout alone. Otherwise a requester
	// asks the peer after about a round trip how far it has got.
	StrictTimeouts bool

	// Inside lets packets between QPs of this port pass in memory, without the
	// socket and without their CRC. Packets, acknowledgements, errors and
	// counters are otherwise those of a network. Packets of RC and XRC QPs may
	// be longer than the path MTU. Datagrams of the GSI QP and to groups always
	// use the socket.
	Inside bool
}

// Port is a device's connection to the network: a UDP socket for each of its addresses, and
// the QPs that use them.
//
// A receive goroutine for each socket handles packets in batches. A transmit goroutine sends
// retransmissions, packets that waited for a window, and whatever no other goroutine
// sends. Close ends both.
type Port struct {
	down atomic.Bool // see SetLink

	table  atomic.Pointer[[]*link] // the GID table; its first entry is the port's own address
	rand   func() uint32
	member netconn.Member // nil: the first address is the port's alone
	first  uint32         // first of the QP numbers of this process
	count  uint32         // number of QP numbers of this process, a power of 2
	now    func() int64   // monotonic time in nanoseconds, never 0

	n      counters
	qps    lookup.Table[*QP]
	timers timers
	ready  readyQueue

	polling polling

	sending sync.Mutex // held while packets are built and sent, so that they leave in order
	builder *builder   // guarded by sending
	line    lineRate   // guarded by sending
	wire    sync.Mutex // held during Send of a socket; taken after sending

	unreliable int64 // Options.UnreliableRate
	isInside   bool  // Options.Inside
	strict     bool  // Options.StrictTimeouts

	wakeup chan struct{} // wakes the transmit goroutine
	done   chan struct{} // closed by Close
	wg     sync.WaitGroup

	outLimit, inLimit int64 // largest limits of the peers' windows
	kept              storedBytes

	mu     sync.Mutex // guards the following fields
	closed bool
	peers  map[netip.Addr]*peer

	multicast multicast
}

// NewPort returns a Port on conn. The Port owns conn, and those of Options.Conns, and closes
// them.
func NewPort(conn packetconn.Conn, opts *Options) *Port {
	p := newPort(conn, opts)
	for _, l := range p.gids() {
		l.start()
	}
	p.wg.Go(p.transmit)
	return p
}

// newPort makes a Port without its goroutines, so that a test moves packets itself by
// calling take, round and expire.
func newPort(conn packetconn.Conn, opts *Options) *Port {
	var o Options
	if opts != nil {
		o = *opts
	}
	def := int64(DefaultWindow)
	buffer := netconn.Of(conn).Caps().RecvBuffer
	if buffer > 0 {
		// The system's overhead per datagram may exceed congestion.PacketCost, so half of
		// the buffer is left for it.
		def = min(def, int64(buffer)/2)
	}
	start := time.Now()
	p := &Port{
		rand:   o.Rand,
		now:    func() int64 { return int64(time.Since(start)) + 1 },
		wakeup: make(chan struct{}, 1),
		done:   make(chan struct{}),
		peers:  make(map[netip.Addr]*peer),
	}
	var table []*link
	for i, c := range append([]packetconn.Conn{conn}, o.Conns...) {
		table = append(table, newLink(p, i, c))
	}
	p.table.Store(&table)
	if p.rand == nil {
		p.rand = random.Uint32
	}
	p.count = psnMask + 1
	p.member, _ = netconn.As[netconn.Member](conn)
	if p.member != nil {
		p.count >>= netconn.MemberBits
		p.first = p.member.Member() * p.count
	}
	p.outLimit, p.inLimit = cmp.Or(int64(max(o.SendWindow, 0)), def), cmp.Or(int64(max(o.ReadWindow, 0)), def)
	p.timers.init(p.wakeup)
	ecn := byte(2) // ECT(0)
	if o.NotECT {
		ecn = 0
	}
	p.builder = newBuilder(ecn)
	p.builder.byMember = p.member != nil
	p.unreliable, p.isInside, p.strict = o.UnreliableRate, o.Inside, o.StrictTimeouts
	p.line = newLineRate(o.UnreliableRate, buffer)
	p.builder.line = &p.line
	return p
}

// LocalAddr returns the address of the first socket.
func (p *Port) LocalAddr() netip.AddrPort { return p.gids()[0].addr }

// Addrs returns the GID table: the addresses of the port's sockets by GID index. Entries
// without an address are not valid.
func (p *Port) Addrs() []netip.AddrPort {
	table := p.gids()
	addrs := make([]netip.AddrPort, len(table))
	for i, l := range table {
		addrs[i] = l.addr
	}
	return addrs
}

// Member returns the share of this process in the address of the socket that
// NewPort got, or nil if no other process can share the address.
func (p *Port) Member() netconn.Member { return p.member }

// Done returns a channel that Close closes.
func (p *Port) Done() <-chan struct{} { return p.done }

// Caps returns the properties of the first socket, for reports. Its MTU is the smallest of
// all sockets.
func (p *Port) Caps() packetconn.Caps {
	table := p.gids()
	caps := table[0].conn.Caps()
	for _, l := range table[1:] {
		if mtu := l.conn.Caps().MTU; mtu != 0 && (caps.MTU == 0 || mtu < caps.MTU) {
			caps.MTU = mtu
		}
	}
	return caps
}

// Framed reports whether the network is one of Ethernet frames, which use the whole Route of a train.
func (p *Port) Framed() bool {
	_, ok := netconn.As[netconn.Framer](p.gids()[0].conn)
	return ok
}

// SetLink connects the port to its network, or cuts it off: until it is connected again, no packet leaves
// it and none arrives, also between two of its own QPs. A new port is connected.
func (p *Port) SetLink(up bool) { p.down.Store(!up) }

// Counters returns a snapshot of the port's counters.
func (p *Port) Counters() rdma.Counters { return p.n.snapshot() }

// NewQP returns a new QP in RESET with a random number. It returns net.ErrClosed on a
// closed Port, EINVAL for an unknown type, and ENOMEM if the port has MaxQP QPs. A QP of
// Type GSI has number 1; NewQP returns EBUSY if the port has one.
func (p *Port) NewQP(h Handler, t rdma.QPType) (*QP, error) {
	const op = "roce new QP"
	if _, ok := h.(DCTHandler); t == ibv.DCT && !ok {
		return nil, failure.New(op, syscall.EINVAL, "the Handler of a DCT must be a DCTHandler")
	}
	return p.newQP(op, h, t, dynamicEndOf(t))
}

// newQP is NewQP for any Handler, or for none until the QP leaves RESET.
func (p *Port) newQP(op string, h Handler, t rdma.QPType, end *dynamicEnd) (*QP, error) {
	service, ok := services[t]
	if !ok {
		return nil, failure.New(op, syscall.EINVAL, "type %d: must be that of an RC, UC, UD, GSI, XRC or DC queue pair", uint8(t))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if most := min(MaxQP, int(p.count/2)); p.qps.Len() >= most {
		return nil, failure.New(op, syscall.ENOMEM, "%d QPs: no more on one port", most)
	}
	q := &QP{port: p, h: h, endpoint: endpoint{typ: t, service: service, num: gsiQPN, dynamicEnd: end}}
	end.attach(q)
	if t == ibv.GSI {
		if !p.qps.Add(q.num, q) {
			return nil, failure.New(op, syscall.EBUSY, "QP 1 is in use")
		}
		return q, nil
	}
	for {
		q.num = p.first + p.rand()&(p.count-1)
		// Numbers 0 and 1 belong to the management QPs, the last one to
		// multicast.
		if q.num > 1 && q.num != psnMask && p.qps.Add(q.num, q) {
			return q, nil
		}
	}
}

// Close sends the acknowledgements that QPs owe, closes the sockets, waits for the port's
// goroutines and closes every QP.
// Closing twice returns net.ErrClosed.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return net.ErrClosed
	}
	p.closed = true
	p.mu.Unlock()
	for _, q := range p.qps.All() {
		q.sendOwedAck()
	}
	var err error
	for _, l := range p.gids() {
		if e := l.conn.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	close(p.done)
	p.multicast.close()
	p.wg.Wait()
	for _, q := range p.qps.All() {
		q.Close()
	}
	// A goroutine that called Kick may still be sending to the closed socket.
	p.sending.Lock()
	defer p.sending.Unlock()
	return err
}
