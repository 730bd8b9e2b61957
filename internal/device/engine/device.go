package engine

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// The limits of a device.
const (
	MaxQPWR        = 1 << 15 // requests of a queue
	MaxSGE         = 30      // entries of a request's list
	MaxInline      = 1 << 12 // bytes of inline data
	MaxCQE         = 1 << 22 // completions of a CQ
	MaxKeys        = 1 << 22 // regions, memory keys and windows
	MaxMKeyEntries = 1 << 16 // entries of a key's layout
	MaxRdAtomic    = 16      // READs and atomics in flight, as requester and as responder
)

// Options tune a device. The zero value, and nil, mean the defaults.
type Options struct {
	// UDPPort is the port to listen on. Default: RoCEv2's 4791, the only port that other
	// implementations send to.
	UDPPort uint16

	// Conn is the network to use instead of a UDP socket at the device's address. The
	// device owns it and closes it.
	Conn packetconn.Conn

	// Addrs are further local addresses of the device: entries 1 and so on of its GID
	// table. Conns are the networks to use instead of UDP sockets at these addresses; there
	// are as many as addresses, or none.
	Addrs []netip.Addr
	Conns []packetconn.Conn

	// KeyStore is the key store that a crypto officer provisions. Default: an empty one
	// that takes plaintext keys.
	KeyStore *dek.Store

	// Transport sets windows and the source of random numbers; nil means the
	// defaults.
	Transport *roce.Options

	// Strict makes memory keys report bad signatures as adapters do: a key that
	// has reported one reports the next only after a new configuration. Without
	// Strict, a key reports the next one as soon as MKey.Check has fetched the
	// last report.
	Strict bool
}

// Device is a software RDMA device: a local address with the objects that were
// created on it. It is safe for concurrent use, as are all objects of this
// package.
type Device struct {
	addr   netip.Addr
	port   *roce.Port
	store  *dek.Store
	tests  Tests
	strict bool
	keys   keyTable
	null   *Region // of NullKey
	users  Users

	// atomics makes atomic operations of all QPs exclude each other (IBV_ATOMIC_HCA).
	atomics sync.Mutex

	mu  sync.Mutex     // guards qps
	qps map[uint32]*QP // by number

	xrc touchedQPs // XRC receive QPs, which reach memory of all PDs
}

// Open opens a device on a local address. With Options.Conn the address may be absent: then
// entry 0 of the GID table is empty, until Port().SetGID sets it. Open runs the known-answer tests of all
// algorithms first; [Device.Tests] returns their result.
func Open(addr netip.Addr, opts *Options) (*Device, error) {
	const op = "open the device"
	if opts == nil {
		opts = &Options{}
	}
	conns, err := listen(op, append([]netip.Addr{addr}, opts.Addrs...), opts)
	if err != nil {
		return nil, err
	}
	var transport roce.Options
	if opts.Transport != nil {
		transport = *opts.Transport
	}
	transport.Conns = append(slices.Clip(conns[1:]), transport.Conns...)
	d := &Device{
		addr:   addr.Unmap(),
		port:   roce.NewPort(conns[0], &transport),
		store:  opts.KeyStore,
		null:   nullRegion(),
		tests:  selfTest(),
		strict: opts.Strict,
		qps:    make(map[uint32]*QP),
	}
	if d.store == nil {
		d.store = dek.NewStore(dek.Plaintext)
	}
	return d, nil
}

// MaxGIDs is the largest number of entries of a GID table.
const MaxGIDs = 16

// listen returns the networks of a device at addrs. If an address cannot be used, the sockets
// that were opened before it are closed.
func listen(op string, addrs []netip.Addr, opts *Options) (conns []packetconn.Conn, err error) {
	if len(addrs) > MaxGIDs {
		return nil, failure.New(op, syscall.EINVAL, "%d addresses: at most %d", len(addrs), MaxGIDs)
	}
	if n := len(opts.Conns); n != 0 && n != len(opts.Addrs) {
		return nil, failure.New(op, syscall.EINVAL, "%d networks for %d further addresses", n, len(opts.Addrs))
	}
	var opened []packetconn.Conn
	defer func() {
		if err != nil {
			for _, c := range opened {
				c.Close()
			}
		}
	}()
	for i, addr := range addrs {
		if i == 0 && !addr.IsValid() && opts.Conn != nil {
			conns = append(conns, opts.Conn)
			continue
		}
		if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
			return nil, failure.New(op, syscall.EINVAL, "address %v of GID index %d: must be one of this host's", addr, i)
		}
		if slices.Contains(addrs[:i], addr) {
			return nil, failure.New(op, syscall.EINVAL, "address %v of GID index %d: it is in the table already", addr, i)
		}
		switch {
		case i == 0 && opts.Conn != nil:
			conns = append(conns, opts.Conn)
			continue
		case i > 0 && len(opts.Conns) > 0:
			conns = append(conns, opts.Conns[i-1])
			continue
		}
		c, err := udp.Listen(netip.AddrPortFrom(addr.Unmap(), cmp.Or(opts.UDPPort, roce.UDPPort)), nil)
		if err != nil {
			var refused *operr.Error
			if errors.As(err, &refused) { // the reason has the address
				return nil, &operr.Error{Op: op, Errno: refused.Errno, Reason: refused.Reason, Err: refused.Err}
			}
			return nil, &operr.Error{Op: op, Errno: failure.Errno(err, syscall.EADDRNOTAVAIL), Reason: "listen on " + addr.String(), Err: err}
		}
		conns, opened = append(conns, c), append(opened, c)
	}
	return conns, nil
}

// GIDs returns the device's GID table: its addresses by GID index.
func (d *Device) GIDs() []netip.Addr {
	var addrs []netip.Addr
	for _, a := range d.port.Addrs() {
		addrs = append(addrs, a.Addr())
	}
	return addrs
}

// Addr returns the address that the device was opened on.
func (d *Device) Addr() netip.Addr { return d.addr }

// PortOf returns the port of a *verbs.Device, for packages of this module that send packets of their own. Package
// verbs sets it; it takes the device as any, because verbs imports this package.
var PortOf func(device any) *roce.Port

// QPOf returns the engine's half of a *verbs.QP, in the same way.
var QPOf func(qp any) *QP

// Port returns the port that carries the device's packets.
func (d *Device) Port() *roce.Port { return d.port }

// KeyStore returns the device's key store.
func (d *Device) KeyStore() *dek.Store { return d.store }

// Tests returns the result of the known-answer tests.
func (d *Device) Tests() *Tests { return &d.tests }

// Users returns the count of the device's users, which a front's own objects join.
func (d *Device) Users() *Users { return &d.users }

// NewAH returns a handle for the destination of datagrams. It returns EINVAL
// for an address to which the device cannot send.
func (d *Device) NewAH(a rdma.AH) (*roce.AH, error) {
	ah, err := d.port.NewAH(a.SGIDIndex, addrPort(a), a.TrafficClass)
	if r := d.route(a); err == nil && r != (packetconn.Route{}) {
		ah = ah.Via(r)
	}
	return ah, err
}

// route returns the route of packets to an address. On a network other than one of Ethernet
// frames it is the hop limit only.
func (d *Device) route(a rdma.AH) packetconn.Route {
	if !d.port.Framed() {
		return packetconn.Route{HopLimit: a.HopLimit}
	}
	return packetconn.Route{MAC: a.NextHop, SourcePort: a.SourcePort, HopLimit: a.HopLimit, Priority: a.SL & 7}
}

// ActiveMTU returns the largest path MTU whose packets fit the interface's MTU
// with the longest headers. Kernel drivers compute it in the same way.
func (d *Device) ActiveMTU() ibv.MTU {
	// IPv6, UDP, BTH, XRC's and the atomics' headers, ICRC.
	const headers = 40 + 8 + 12 + 4 + 28 + 4
	mtu := d.port.Caps().MTU
	for m := ibv.MTU4096; m > ibv.MTU256; m-- {
		if mtu == 0 || mtu >= m.Bytes()+headers {
			return m
		}
	}
	return ibv.MTU256
}

// QP returns the QP with a number, or nil.
func (d *Device) QP(num uint32) *QP {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.qps[num]
}

// QPs returns the numbers of the QPs for which uses is true; uses must not call methods of the device.
func (d *Device) QPs(uses func(*QP) bool) []uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var numbers []uint32
	for n, qp := range d.qps {
		if uses(qp) {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// Close closes the device. It returns EBUSY while the device has users.
func (d *Device) Close() error {
	first, err := d.users.Close("close the device", nil)
	if !first {
		return err
	}
	return d.port.Close()
}
