package adapter

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
)

// Options are what a user chooses of an adapter, for programs and for virtual machines alike.
type Options struct {
	KeyStore *dek.Store // the data encryption keys; nil: an empty one that takes plaintext keys
	Strict   bool       // as in engine.Options

	// SingleBlock makes the AES-XTS engine one that reports single-block, little-endian
	// tweaks in place of multi-block, big-endian ones.
	SingleBlock bool

	// AdapterReports makes reports of bad signatures those of adapters: the actual value is the
	// one in the field, the expected value is the computed one, and the offset is that of the
	// last byte of the block and its field. Otherwise they are as mlx5dv_mkey_check(3) says:
	// the actual value is the computed one, the expected value is the one in the field, and the
	// offset is that of the block's first byte.
	AdapterReports bool
}

// Config configures a device.
type Config struct {
	Options
	Addr      netip.Addr      // the local address; absent: those of Device.SetGID
	UDPPort   uint16          // 0: RoCEv2's 4791
	Conn      packetconn.Conn // nil: a UDP socket at Addr
	Transport *roce.Options   // nil: the defaults
	Tracer    Tracer          // nil: no trace
	Opened    time.Time       // when the counter of Device.Clock was 0; the zero value: now

	// Wake is called when a context may have doorbells to look at again: Busy turned
	// true. It is called from any goroutine and must not block.
	Wake func(*Context)
}

// Device is an adapter with one port.
type Device struct {
	cfg   Config
	eng   *engine.Device
	store *dek.Store
	gids  atomic.Pointer[[]GIDEntry] // replaced as a whole

	next numbers

	failures Failures
	linkDown atomic.Bool // see SetLink

	mu       sync.Mutex // guards the following fields
	contexts map[*Context]struct{}
}

// numbers hands out the numbers of objects that are no secret: no two contexts have the same ones at first.
type numbers struct {
	pd, domain, cq, srq, psv, object, umem, ah, xrcd number.Range
	context                                          atomic.Uint32
}

// Open opens an adapter.
func Open(cfg Config) (*Device, error) {
	store := cfg.KeyStore
	if store == nil {
		store = dek.NewStore(dek.Plaintext)
	}
	keydoor.AcceptEqualHalves(store) // as adapters do
	eng, err := engine.Open(cfg.Addr, &engine.Options{UDPPort: cfg.UDPPort, Conn: cfg.Conn, Transport: cfg.Transport, KeyStore: store, Strict: cfg.Strict})
	if err != nil {
		return nil, err
	}
	if cfg.Opened.IsZero() {
		cfg.Opened = time.Now()
	}
	d := &Device{cfg: cfg, eng: eng, store: store, contexts: make(map[*Context]struct{})}
	var gids []GIDEntry
	if eng.Addr().IsValid() {
		gids = gidTable(eng.Addr())
	}
	d.gids.Store(&gids)
	return d, nil
}

// Engine returns the device that executes the requests, for its counters and its port.
func (d *Device) Engine() *engine.Device { return d.eng }

// Close closes the adapter; contexts that are open are closed first. An error names what could
// not be closed; the device's address is free nevertheless.
func (d *Device) Close() error {
	var errs []error
	for _, c := range d.all() {
		errs = append(errs, c.Close())
	}
	err := d.eng.Close()
	if errors.Is(err, syscall.EBUSY) {
		// An object that stayed is a fault of this package. It must not keep the address.
		d.eng.Port().Close()
	}
	return errors.Join(append(errs, err)...)
}

// Clock returns the free-running counter that completions are stamped with: it counts
// nanoseconds.
func (d *Device) Clock() uint64 { return uint64(time.Since(d.cfg.Opened)) }
