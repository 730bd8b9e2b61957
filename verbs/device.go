package verbs

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// The limits of a device.
const (
	maxQPWR        = 1 << 15
	maxSGE         = 30
	maxInline      = 1 << 12
	maxCQE         = 1 << 22
	maxMKeyEntries = 1 << 16
	maxRdAtomic    = 16
)

// Options are what a device can be opened with; nil means the defaults.
type Options struct {
	// UDPPort is the port to listen on: RoCEv2's 4791 by default, which is the
	// only one that other implementations talk to.
	UDPPort uint16

	// Conn is the network to use instead of a UDP socket at the address: one
	// inside the process, or one that records or fails on purpose. The device
	// owns and closes it.
	Conn packetconn.Conn

	// KeyStore is the key store of the device, provisioned by a crypto officer; by
	// default it is an empty one that takes plaintext keys.
	KeyStore *dek.Store

	// Transport tunes windows and randomness; nil means the defaults.
	Transport *roce.Options
}

// Device is a software RDMA device: a local address with everything that was
// made on it. It is what libibverbs calls a context.
type Device struct {
	addr   netip.Addr
	port   *roce.Port
	keys   keyTable
	events *eventQueue
	crypto *cryptoState
	users  users

	// atomics makes atomic operations of all QPs exclude each other
	// (IBV_ATOMIC_HCA).
	atomics sync.Mutex

	mu  sync.Mutex
	qps map[*QP]struct{} // guarded by mu
}

// Open opens a device on a local address. It runs known-answer tests of all its
// algorithms first; which failed is told by [Device.CryptoCaps] and
// [Device.SignatureCaps], and what failed cannot be used.
func Open(addr netip.Addr, opts *Options) (*Device, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return nil, operr.New("open a device", syscall.EINVAL, "address %v: must be one of this host's", addr)
	}
	if opts == nil {
		opts = &Options{}
	}
	conn := opts.Conn
	if conn == nil {
		port := opts.UDPPort
		if port == 0 {
			port = roce.UDPPort
		}
		var err error
		conn, err = udp.Listen(netip.AddrPortFrom(addr.Unmap(), port), nil)
		if err != nil {
			return nil, &operr.Error{Op: "open a device", Errno: errnoOf(err, syscall.EADDRNOTAVAIL), Reason: "listen on " + addr.String(), Err: err}
		}
	}
	d := &Device{
		addr:   addr.Unmap(),
		port:   roce.NewPort(conn, opts.Transport),
		events: newEventQueue(),
		qps:    make(map[*QP]struct{}),
	}
	d.crypto = newCryptoState(opts.KeyStore, selfTest())
	return d, nil
}

// Addr returns the address that the device was opened on.
func (d *Device) Addr() netip.Addr { return d.addr }

// Transport returns the port that carries the device's packets, for counters.
func (d *Device) Transport() *roce.Port { return d.port }

// Polling announces a goroutine that calls [Device.Poll] again and again, instead of
// waiting for completions, until it calls done. That is the fastest way to use a
// device. Whatever the device does is done within calls of Poll, meanwhile, or in
// those that post: a program that does something else for long makes its peers wait,
// and one that asks without ever letting other goroutines run (runtime.Gosched) may
// keep the device's own from the timers.
func (d *Device) Polling() (done func()) { return d.port.Polling() }

// Poll lets the device do what there is to do, on this goroutine: take packets and
// carry them out, which makes completions, and send. It does not wait, and reports
// whether there was anything to do. See [Device.Polling].
func (d *Device) Poll() bool { return d.port.Poll() }

// Close closes the device. While something of it exists that is EBUSY, and the
// error says what.
func (d *Device) Close() error {
	first, err := d.users.close("close the device")
	if !first {
		return err
	}
	err = d.port.Close()
	d.events.close()
	return err
}

// quiesce waits until every QP has left the Handler method it may be in: after
// it, memory that was taken away before is not used any more.
func (d *Device) quiesce() {
	d.mu.Lock()
	qps := make([]*QP, 0, len(d.qps))
	for qp := range d.qps {
		qps = append(qps, qp)
	}
	d.mu.Unlock()
	for _, qp := range qps {
		qp.rc.State() // takes the lock under which the QP's Handler runs
	}
}

func errnoOf(err error, otherwise syscall.Errno) syscall.Errno {
	for e := err; e != nil; {
		if errno, ok := e.(syscall.Errno); ok {
			return errno
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	return otherwise
}
