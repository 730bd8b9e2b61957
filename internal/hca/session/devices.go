//go:build linux && (amd64 || arm64)

package session

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/control"
	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/procmem"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/internal/hca/share"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/netem"
)

// run holds the devices of a program, their files and their recordings.
type run struct {
	cfg      Config
	manager  *rdmacm.Manager
	root     string   // of the files of /sys and /dev
	lock     *os.File // on root
	recorder Recorder // nil: none
	tracers  trace.Writers
	controls []*control.Server
	links    *linkWatch // nil: no device is on an interface that can go down
	metrics  io.Closer  // nil: nobody reads the counters
	opened   bool       // open has succeeded

	changes atomic.Uint64 // of registered memory

	mu       sync.RWMutex // guards the following fields
	closed   bool
	devices  []*uverbs.Device
	services []*cmcore.Service // of the devices
	faults   []*deviceFaults   // of the devices
}

// open opens everything that the configuration names, and fills the tree at root.
func (r *run) open() error {
	if err := r.openTraces(); err != nil {
		return err
	}
	if r.cfg.Record != nil {
		recorder, err := r.cfg.Record()
		if err != nil {
			return err
		}
		r.recorder = recorder
	}
	if n := len(r.cfg.Devices); n > uverbs.MaxDevices {
		return fmt.Errorf("run: %d devices: at most %d fit on the bus", n, uverbs.MaxDevices)
	}
	config := rdmacm.Config{Host: r}
	for _, d := range r.cfg.Devices {
		c, err := r.openDevice(d)
		if err != nil {
			return err
		}
		config.Devices = append(config.Devices, c)
	}
	if len(r.tracers) > 0 {
		config.Trace = r.tracers.TraceCM
	}
	r.manager = rdmacm.New(config)
	for _, path := range []string{r.cfg.Officer, r.cfg.Control} {
		if path == "" {
			continue
		}
		server, err := control.Listen(path, r.cfg.KeyStore, r)
		if err != nil {
			return fmt.Errorf("run: the control socket %s: %w", path, err)
		}
		r.controls = append(r.controls, server)
	}
	if r.cfg.Counters != nil {
		var err error
		if r.metrics, err = r.cfg.Counters(r.counters); err != nil {
			return err
		}
	}
	if err := uverbs.WriteTree(r.root, r.devices); err != nil {
		return fmt.Errorf("run: the files of the devices: %w", err)
	}
	r.links = watchLinks(r)
	r.opened = true
	return nil
}

// close closes everything and returns the first error.
func (r *run) close() error {
	var first error
	keep := func(err error) { first = cmp.Or(first, err) }
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	// Both write files.
	for _, s := range r.controls {
		keep(s.Close())
	}
	r.links.close()
	// Removing the files takes as long as closing the devices.
	var removed sync.WaitGroup
	var notRemoved error
	if r.root != "" {
		removed.Go(func() { notRemoved = os.RemoveAll(r.root) })
	}
	if r.metrics != nil {
		keep(r.metrics.Close())
	}
	if r.manager != nil {
		r.manager.Close()
	}
	for _, s := range r.services {
		s.Close()
	}
	for _, d := range r.devices {
		if err := d.Close(); err != nil {
			keep(fmt.Errorf("run: closing %s: %w", d.Name(), err))
		}
	}
	// If the devices could not be opened, earlier recordings stay as they are.
	if r.recorder != nil {
		end := r.recorder.Close
		if !r.opened {
			end = r.recorder.Abort
		}
		keep(end())
	}
	keep(r.tracers.Close(r.opened))
	if r.root != "" {
		removed.Wait()
		keep(notRemoved)
		r.lock.Close()
	}
	return first
}

// refused traces why a process got no descriptor of a device.
func (r *run) refused(pid int, what string, err error) { r.tracers.Refused(pid, what, err) }

// mostChanges bounds the warnings about changes of registered memory.
const mostChanges = 100

// memoryChanged tells the devices of a change of a program's memory, and warns if the memory is registered.
func (r *run) memoryChanged(c procmem.Change) {
	for _, d := range r.snapshot() {
		for _, what := range d.MemoryChanged(c) {
			switch n := r.changes.Add(1); {
			case n < mostChanges:
				r.cfg.Warn(fmt.Errorf("run: process %d: %s", c.Process, what))
			case n == mostChanges:
				r.cfg.Warn(fmt.Errorf("run: process %d: %s; later changes are not printed", c.Process, what))
			}
		}
	}
}

// openTraces makes the writers of the traces.
func (r *run) openTraces() error {
	for _, t := range r.cfg.Traces {
		t.Options.Process = r.process
		w, err := t.Open()
		if err != nil {
			return fmt.Errorf("run: %w", err)
		}
		r.tracers = append(r.tracers, w)
	}
	return nil
}

// snapshot returns the devices that are open now.
func (r *run) snapshot() []*uverbs.Device {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.devices
}

// process returns the process that a context belongs to; 0 if it is not known.
func (r *run) process(ctx *adapter.Context) int {
	for _, d := range r.snapshot() {
		if pid := d.Process(ctx); pid != 0 {
			return pid
		}
	}
	return 0
}

// counters returns the counters of the devices.
func (r *run) counters() (list []Counters) {
	for _, d := range r.snapshot() {
		eng := d.Adapter().Engine()
		list = append(list, Counters{d.Name(), eng.Addr(), eng.Port().Counters(), d.Adapter().Objects()})
	}
	return list
}

// DEKs implements control.Devices.
func (r *run) DEKs() (list []control.DEK) {
	for _, d := range r.snapshot() {
		for _, k := range d.Adapter().DEKs() {
			list = append(list, control.DEK{Device: d.Name(), Number: k.Number, Bits: k.Bits, Process: d.Process(k.Context)})
		}
	}
	return list
}

// failDEK puts a DEK into state error.
func (r *run) failDEK(device string, number uint32) error {
	for _, d := range r.snapshot() {
		if d.Name() == device {
			return d.Adapter().FailDEK(number)
		}
	}
	return failure.New("dek fail", syscall.ENOENT, "device %q does not exist", device)
}

// node returns the device file with a path, or nil.
func (r *run) node(path string) intercept.Node {
	if path == uverbs.CMNode {
		return cmNode{r.manager}
	}
	for _, d := range r.snapshot() {
		if d.Node() == path {
			return uverbsNode{d}
		}
	}
	return nil
}

// refresh brings the file with a path up to date before a program opens it.
func (r *run) refresh(path string) {
	uverbs.Refresh(r.root, r.snapshot(), path)
}

// loopbacks is the number of addresses of 127.0.0.0/8 that are tried.
const loopbacks = 250

// openDevice opens a device of the configuration.
func (r *run) openDevice(d Device) (rdmacm.Device, error) {
	if d.Addr.IsValid() {
		c, err := r.openAt(d, false)
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			err = &DeviceError{d.Addr, "is no address of this host", err}
		case err != nil:
			err = &DeviceError{d.Addr, "", err}
		}
		return c, err
	}
	next := netip.MustParseAddr("127.0.0.1")
	for tried := 1; ; tried++ {
		c, err := r.openAt(Device{Name: d.Name, Addr: next}, true)
		switch {
		case !errors.Is(err, syscall.EADDRINUSE):
			return c, err
		case tried == loopbacks:
			return c, fmt.Errorf("run: none of %d addresses from 127.0.0.1 on is free: the last one: %w", loopbacks, err)
		}
		next = next.Next()
	}
}

// openAt opens a device at its address, and its communication manager. Unless alone is set, it joins the devices that
// other runs of the user have there.
func (r *run) openAt(of Device, alone bool) (rdmacm.Device, error) {
	none, index := rdmacm.Device{}, len(r.devices)
	inside, at := r.cfg.inside(), netip.AddrPortFrom(of.Addr, roce.UDPPort)
	var page *assist.Page
	if inside && r.cfg.Library != "" {
		var err error
		if page, err = assist.New(); err != nil {
			r.cfg.Warn(fmt.Errorf("run: programs do not help %s: %w", of.Name, err))
		}
	}
	var shared *share.Conn
	var err error
	if inside {
		shared, err = share.Near(at, alone, page, false)
	} else {
		shared, err = share.Listen(at, nil, alone)
	}
	if err != nil {
		page.Close()
		return none, err
	}
	faults := r.cfg.Faults
	if faults == nil && r.cfg.Control != "" {
		faults = &Faults{Seed: 1} // none, until they are asked for
	}
	conn := Network(shared, r.recorder, faults, index)
	cfg := uverbs.Config{Name: of.Name, Index: index, Addr: of.Addr, WatchMemory: r.cfg.StrictMemory, Helpers: page}
	if len(r.tracers) > 0 {
		cfg.Refused = r.tracers.Refused
	}
	hw := adapter.Config{Addr: of.Addr, Conn: conn, Transport: &roce.Options{Inside: inside, StrictTimeouts: faults != nil && faults.StrictTimeouts}, Options: r.cfg.Options}
	switch {
	case r.cfg.Summary != nil:
		hw.Tracer = trace.Tee{r.cfg.Summary, r.tracers}
	case len(r.tracers) > 0:
		hw.Tracer = r.tracers
	}
	d, err := uverbs.Open(cfg, hw)
	if err != nil {
		conn.Close()
		page.Close()
		return none, err
	}
	s, c, err := openService(d)
	if err != nil {
		d.Close()
		return none, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // the program has ended
		s.Close()
		d.Close()
		return none, net.ErrClosed
	}
	lossy, _ := conn.(*netem.Conn)
	r.devices, r.services = append(r.devices, d), append(r.services, s)
	r.faults = append(r.faults, &deviceFaults{device: d, service: s, index: index, follow: of.Follow, conn: lossy, usual: faults})
	return c, nil
}
