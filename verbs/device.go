package verbs

import (
	"net/netip"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// DeviceOptions are the options of [Open]; nil means the defaults.
type DeviceOptions struct {
	// UDPPort is the port to listen on. Default: RoCEv2's 4791, the only port that other
	// implementations send to.
	UDPPort uint16

	// Conn is the network to use instead of a UDP socket at the device's
	// address: for example one inside the process, or one that records packets
	// or adds faults. The device owns it and closes it.
	Conn packetconn.Conn

	// Addrs are further local addresses of the device, for example the IPv6 address of the
	// interface: entries 1 and so on of its GID table, which AH.SGIDIndex selects. The
	// device opens a UDP socket for each. Conns are the networks to use instead of these
	// sockets; there are as many as addresses, or none. The device closes them.
	Addrs []netip.Addr
	Conns []packetconn.Conn

	// KeyStore is the key store of the device, provisioned by a crypto officer. Default:
	// an empty one that takes plaintext keys.
	KeyStore *dek.Store

	// SendWindow and ReadWindow are the largest numbers of bytes in flight to one peer, of
	// requests and of READ responses, counted over all QPs. After losses the limits are
	// smaller for a while. Default: 2 MiB, or half of the socket's receive buffer if that
	// is less, because the peer's buffer may be as small.
	SendWindow, ReadWindow int

	// UnreliableRate is the rate in bytes per second at which all UC and UD QPs of the
	// device send together. Nobody acknowledges their packets, so the sender does not know
	// whether the receiver keeps up. Default: 100 to 400 MB/s, by the size of the
	// socket's receive buffer, because the peer's is probably as large. A negative rate
	// is unlimited.
	UnreliableRate int64

	// Strict makes memory keys report bad signatures as adapters do: a key that
	// has reported a bad signature reports the next one only after a new
	// configuration. Without Strict, a key reports the next one as soon as
	// [MKey.Check] has returned the previous one.
	Strict bool
}

// Device is a software RDMA device with one or several local addresses, like a context of libibverbs.
// Its objects belong to it.
type Device struct {
	e      *engine.Device
	crypto *dek.Context
	events *eventQueue
}

// Open opens a device on a local address. It first runs known-answer tests of all
// algorithms. [Device.CryptoCaps] and [Device.SignatureCaps] report those that failed,
// which cannot be used.
func Open(addr netip.Addr, opts *DeviceOptions) (*Device, error) {
	if opts == nil {
		opts = &DeviceOptions{}
	}
	e, err := engine.Open(addr, &engine.Options{
		UDPPort: opts.UDPPort, Conn: opts.Conn, Addrs: opts.Addrs, Conns: opts.Conns, KeyStore: opts.KeyStore, Strict: opts.Strict,
		Transport: &roce.Options{SendWindow: opts.SendWindow, ReadWindow: opts.ReadWindow, UnreliableRate: opts.UnreliableRate},
	})
	if err != nil {
		return nil, err
	}
	return &Device{e: e, crypto: e.KeyStore().NewContext(), events: newEventQueue()}, nil
}

// Addr returns the device's local address: the one with GID index 0.
func (d *Device) Addr() netip.Addr { return ask(d.e, (*engine.Device).Addr) }

// ask returns what f says about an object, or the zero value about none: that of a type that a function of this package
// makes has no object.
func ask[E, T any](e *E, f func(*E) T) (v T) {
	if e != nil {
		v = f(e)
	}
	return v
}

// do calls a method of an object that the function maker makes. For none it returns the error of op.
func do[E any](e *E, op, maker string, f func(*E) error) error {
	if e == nil {
		return failure.Zero(op, maker)
	}
	return f(e)
}

// askPort is ask for the device's port.
func askPort[T any](d *Device, f func(*roce.Port) T) T {
	return ask(d.e, func(e *engine.Device) T { return f(e.Port()) })
}

// GIDTable returns the device's GID table (ibv_query_gid_table(3)): an entry for each of its
// addresses, in the order of the indices. Entry 0 is the address that the device was opened
// on. All entries are of RoCEv2.
func (d *Device) GIDTable() []rdma.GID {
	var table []rdma.GID
	for _, a := range askPort(d, (*roce.Port).Addrs) {
		table = append(table, rdma.GIDOf(a.Addr()))
	}
	return table
}

// Counters returns the counts of the device's packets and of its losses.
func (d *Device) Counters() rdma.Counters { return askPort(d, (*roce.Port).Counters) }

// Paths returns the state of congestion control for each peer that QPs are connected to, in
// the order of addresses. It is for reports: it locks every QP of the device in turn.
func (d *Device) Paths() []rdma.PathState { return askPort(d, (*roce.Port).Paths) }

// UDPPort returns the UDP port on which the device listens.
func (d *Device) UDPPort() uint16 { return askPort(d, (*roce.Port).LocalAddr).Port() }

func init() {
	engine.PortOf = func(device any) *roce.Port { return device.(*Device).e.Port() }
	engine.QPOf = func(qp any) *engine.QP { return qp.(*QP).e }
}

// Crypto returns the context through which users log in to the key store and
// create DEKs.
func (d *Device) Crypto() *dek.Context { return d.crypto }

// Polling announces that the caller will call [Device.Poll] in a loop until it
// calls done. It is the fastest way to use a device. The device then mainly
// works within calls of Poll and calls that post requests, so its peers wait
// while the program pauses.
func (d *Device) Polling() (done func()) {
	if d.e == nil {
		return func() {}
	}
	return d.e.Port().Polling(nil)
}

// Poll processes the device's work on the caller's goroutine: it receives and executes
// packets, which produces completions, and sends packets. It does not block. It reports
// whether there was anything to do. See [Device.Polling].
func (d *Device) Poll() bool { return askPort(d, (*roce.Port).Poll) }

// Close closes the device. It returns EBUSY while objects of the device exist; the error
// names their kinds.
func (d *Device) Close() error {
	if d.e == nil {
		return failure.Zero("close a device", "Open")
	}
	if err := d.e.Close(); err != nil {
		return err
	}
	d.events.close()
	return nil
}
