//go:build linux

package uverbs

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pump"
)

// The numbers of the kernel's uverbs device nodes.
const (
	nodeMajor = 231
	nodeMinor = 192 // minor number of uverbs0
)

// Device is an adapter as programs see it.
type Device struct {
	name    string
	index   int
	addr    netip.Addr
	netdev  atomic.Int32 // index of the interface that had the address last; 0: none
	adapter *adapter.Device
	attr    adapter.Attr
	pump    *pump.Pump
	helpers *assist.Page
	refused func(pid int, what string, err error)

	processes  sync.Map   // *adapter.Context to its process's id
	countersMu sync.Mutex // held while counters are written

	watches   bool // registered memory is watched
	watchedMu sync.Mutex
	watched   map[*watched]struct{} // guarded by watchedMu

	unwatched bool // doorbell registers are not watched
	now       func() time.Time
	ticker    *time.Ticker
	ending    chan struct{} // closed by Close
	timeEnded chan struct{}

	mu     sync.Mutex // guards the following fields, and serialises the updates of clocks
	files  map[*adapter.Context]*File
	xrcds  map[xrcdFile]*namedXRCD
	closed bool
	left   error // the first error of closing a context
}

// Config describes a device.
type Config struct {
	Name  string // as in /sys/class/infiniband: mlx5_0
	Index int    // number of its node: 0 for uverbs0
	Addr  netip.Addr
	// Refused is called with the reason of each command that is refused; nil: reasons are
	// dropped.
	Refused func(pid int, what string, err error)

	// WatchMemory watches the memory of regions: see [Device.MemoryChanged].
	WatchMemory bool

	// Helpers is the page of the device's helpers; nil: there are none. The device closes it if it was opened.
	Helpers *assist.Page

	// For tests.
	unwatched bool             // as where there are no watchpoints
	now       func() time.Time // the wall clock; nil: time.Now
}

// Open opens the adapter and makes a device of it. It sets hw.Wake.
func Open(cfg Config, hw adapter.Config) (*Device, error) {
	d := &Device{name: cfg.Name, index: cfg.Index, addr: cfg.Addr, refused: cfg.Refused, watches: cfg.WatchMemory, unwatched: cfg.unwatched, now: cfg.now, helpers: cfg.Helpers,
		ending: make(chan struct{}), timeEnded: make(chan struct{}), files: map[*adapter.Context]*File{}, xrcds: map[xrcdFile]*namedXRCD{}}
	if d.now == nil {
		d.now = time.Now
	}
	var err error
	if d.pump, err = pump.New(cfg.Helpers); err != nil {
		return nil, failure.New("open the device", failure.Errno(err, syscall.EIO), "%v", err)
	}
	hw.Wake = func(ctx *adapter.Context) { d.pump.Wake(ctx) }
	a, err := adapter.Open(hw)
	if err != nil {
		d.pump.Close()
		return nil, err
	}
	d.adapter, d.attr = a, a.Attr()
	d.pump.Start(a.Engine().Port(), hw.Conn)
	d.ticker = time.NewTicker(clockEvery)
	go d.keepTime(d.ticker.C)
	return d, nil
}

// MayWait tells the device that copies of the program's memory may wait for a page that another
// process or host supplies. The context gets goroutines of its own, so that no other program
// waits with it. Calls after the first do nothing.
func (f *File) MayWait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits = true
	f.isolate()
}

// isolate gives the context a thread of its own, if its memory may wait. f.mu is held.
func (f *File) isolate() {
	if f.waits && f.ctx != nil && !f.closed {
		f.dev.pump.Isolate(f.ctx) // if no descriptor is free, the device's thread keeps serving it
	}
}

// Close closes the adapter. Files that are open are closed first. A second call returns at once.
// The error says why a context could not be closed completely: the first one, in this call or before it.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	open := slices.Collect(maps.Values(d.files))
	d.mu.Unlock()
	for _, f := range open {
		f.Close()
	}
	d.ticker.Stop()
	close(d.ending)
	<-d.timeEnded
	d.pump.Close()
	err := d.adapter.Close()
	d.helpers.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left != nil {
		return d.left
	}
	return err
}

// Fail ends all contexts of the device, as a fatal error of an adapter does. Programs may open the device
// again.
func (d *Device) Fail() {
	d.mu.Lock()
	open := slices.Collect(maps.Values(d.files))
	d.mu.Unlock()
	for _, f := range open {
		f.Fail()
	}
}

// notClosed records an error of closing a context in d.left, which keeps the first one.
func (d *Device) notClosed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left = err
	}
}

// Name returns the device's name in /sys/class/infiniband.
func (d *Device) Name() string { return d.name }

// Adapter returns the device's adapter.
func (d *Device) Adapter() *adapter.Device { return d.adapter }

// Number returns the device number of the node.
func (d *Device) Number() (major, minor uint32) { return nodeMajor, nodeMinor + uint32(d.index) }

func (d *Device) add(f *File, ctx *adapter.Context) {
	d.processes.Store(ctx, f.pid)
	d.mu.Lock()
	f.clock.set(d.adapter.Clock(), d.now())
	d.files[ctx] = f
	d.mu.Unlock()
	var registers func() pump.Registers
	if !d.unwatched {
		registers = f.registers
	}
	d.pump.Add(ctx, registers)
}

func (d *Device) remove(f *File) {
	d.mu.Lock()
	delete(d.files, f.ctx)
	d.mu.Unlock()
	d.pump.Remove(f.ctx)
}

// Process returns the process that opened a context of the device, or 0. It takes
// no lock, because tracers call it while the adapter holds locks.
func (d *Device) Process(ctx *adapter.Context) int {
	pid, _ := d.processes.Load(ctx)
	n, _ := pid.(int)
	return n
}

// The doorbell registers of a UAR page.
const (
	blueFlame  = 0x800 // drivers write to this register and to the next one in turn
	blueFlame2 = 0x900
	armCQ      = 0x20
)

// registers returns the addresses of the registers that the program rings: those of UARs with
// queue pairs, and those where completion queues are armed. If the process has ended, Pid is 0:
// other processes that have its descriptor may ring the registers, but they are not known.
func (f *File) registers() pump.Registers {
	f.uarMu.Lock()
	defer f.uarMu.Unlock()
	var r pump.Registers
	if f.mem.process.Alive() {
		r.Pid = f.pid
	}
	for u := range f.bells {
		qps, arms := u.Rung()
		if !qps && !arms {
			continue
		}
		if u.addr == 0 {
			u.addr = f.mem.process.AddressOf(u.ino)
		}
		if u.addr == 0 {
			continue
		}
		if qps {
			r.Addrs = append(r.Addrs, u.addr+blueFlame, u.addr+blueFlame2)
		}
		if arms {
			r.Addrs = append(r.Addrs, u.addr+armCQ)
		}
	}
	return r
}
