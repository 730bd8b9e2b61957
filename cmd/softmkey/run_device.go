//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/cmcore"
	"github.com/softmkey/softmkey/internal/base/udp"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/officer"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/internal/hca/trace"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// runner holds the devices of a program, their files and their recordings.
type runner struct {
	flags    *runFlags
	manager  *rdmacm.Manager
	root     string   // of the files of /sys and /dev
	lock     *os.File // on root
	recorder *pcap.Recorder
	tracers  trace.Writers
	summary  *trace.Summary // nil: none
	store    *dek.Store     // of all devices
	officer  *officer.Server

	mu       sync.RWMutex // guards the following fields
	closed   bool
	devices  []*uverbs.Device
	services []*cmcore.Service // of the devices
}

// open opens everything that the flags name, and fills the tree at root.
func (b *runner) open() error {
	f := b.flags
	if err := b.openTrace(); err != nil {
		return err
	}
	var err error
	if b.store, err = f.keyStore(); err != nil {
		return err
	}
	if f.profile != "multi-block" && f.profile != "single-block" {
		return fmt.Errorf("run: --crypto-profile %q: the profiles are multi-block and single-block", f.profile)
	}
	if f.reports != "manual" && f.reports != "adapter" {
		return fmt.Errorf("run: --signature-errors %q: the orders are manual and adapter", f.reports)
	}
	if f.pcap != "" {
		r, err := pcap.Create(string(f.pcap), nil)
		if err != nil {
			return err
		}
		b.recorder = r
	}
	addrs := f.devices
	if len(addrs) == 0 {
		addrs = addrList{{}}
	}
	if len(addrs) > uverbs.MaxDevices {
		return fmt.Errorf("run: %d devices: at most %d fit on the bus", len(addrs), uverbs.MaxDevices)
	}
	if len(f.names) > len(addrs) {
		return fmt.Errorf("run: %d names for %d devices", len(f.names), len(addrs))
	}
	config := rdmacm.Config{Host: host{b}}
	for i, a := range addrs {
		if slices.Contains(addrs[:i], a) {
			return fmt.Errorf("run: --device %v is given twice", a.Addr)
		}
		name := fmt.Sprintf("mlx5_%d", i)
		if i < len(f.names) {
			name = f.names[i]
		}
		if name == "" || strings.ContainsAny(name, "/ \n") || name[0] == '.' || len(name) > 63 {
			return fmt.Errorf("run: --name %q: a device's name has 1 to 63 characters without slashes and spaces and does not begin with a dot", name)
		}
		c, err := b.openDevice(name, a.Addr)
		if err != nil {
			return err
		}
		config.Devices = append(config.Devices, c)
	}
	if len(b.tracers) > 0 {
		config.Trace = b.tracers.TraceCM
	}
	b.manager = rdmacm.New(config)
	if f.officer != "" {
		if b.officer, err = officer.Listen(f.officer, b.store, b); err != nil {
			return fmt.Errorf("run: --officer %s: %w", f.officer, reason(err))
		}
	}
	if err := uverbs.WriteTree(b.root, b.devices); err != nil {
		return fmt.Errorf("run: the files of the devices: %w", err)
	}
	return nil
}

// close closes everything and returns the first error.
func (b *runner) close() error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	// Removing the files takes as long as closing the devices.
	var removed sync.WaitGroup
	var notRemoved error
	if b.root != "" {
		removed.Go(func() { notRemoved = os.RemoveAll(b.root) })
	}
	if b.officer != nil {
		keep(b.officer.Close())
	}
	if b.manager != nil {
		b.manager.Close()
	}
	for _, s := range b.services {
		s.Close()
	}
	for _, d := range b.devices {
		if err := d.Close(); err != nil {
			keep(fmt.Errorf("run: closing %s: %w", d.Name(), err))
		}
	}
	if b.recorder != nil {
		keep(b.recorder.Close())
	}
	for _, t := range b.tracers {
		keep(t.Close())
	}
	if b.summary != nil {
		keep(b.writeSummary())
	}
	if b.root != "" {
		removed.Wait()
		keep(notRemoved)
		b.lock.Close()
	}
	return first
}

// openTrace makes the tracers of --trace and -v.
func (b *runner) openTrace() error {
	f := b.flags
	format := slices.Index(trace.Formats, f.traceFormat)
	if format < 0 {
		return fmt.Errorf("run: --trace-format %q: the formats are %s", f.traceFormat, strings.Join(trace.Formats, ", "))
	}
	kinds, err := trace.ParseKinds(f.traceKinds)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	objects, err := trace.ParseObjects(f.traceOnly)
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	if f.trace == "" && (kinds != nil || objects != nil || f.traceFormat != "text") {
		return errors.New("run: --trace-kind, --trace-object and --trace-format choose what --trace writes: give --trace too")
	}
	if f.trace != "" {
		var to io.Writer = os.Stderr
		var file io.Closer
		if f.trace != "-" {
			made, err := os.Create(f.trace)
			if err != nil {
				return fmt.Errorf("run: --trace: %w", err)
			}
			to, file = made, made
		}
		b.tracers = append(b.tracers, trace.New(to, file, trace.Options{Kinds: kinds, Objects: objects, Format: trace.Format(format), Process: b.process}))
	}
	if f.summary != "" {
		b.summary = new(trace.Summary)
	}
	if f.verbose && f.trace != "-" {
		b.tracers = append(b.tracers, trace.New(os.Stderr, nil, trace.Options{Reasons: true, Process: b.process}))
	}
	return nil
}

// writeSummary writes what --summary asks for.
func (b *runner) writeSummary() error {
	report := b.summary.Report()
	name := b.flags.summary
	if name == "-" {
		_, err := report.WriteTo(os.Stderr)
		return err
	}
	var text bytes.Buffer
	if strings.HasSuffix(name, ".json") {
		encodeJSON(&text, report)
	} else {
		report.WriteTo(&text)
	}
	if err := os.WriteFile(name, text.Bytes(), 0o666); err != nil {
		return fmt.Errorf("run: --summary: %w", err)
	}
	return nil
}

// process returns the process that a context belongs to; 0 if it is not known.
func (b *runner) process(ctx *adapter.Context) int {
	b.mu.RLock()
	devices := b.devices
	b.mu.RUnlock()
	for _, d := range devices {
		if pid := d.Process(ctx); pid != 0 {
			return pid
		}
	}
	return 0
}

// DEKs implements officer.Devices.
func (b *runner) DEKs() (list []officer.DEK) {
	b.mu.RLock()
	devices := b.devices
	b.mu.RUnlock()
	for _, d := range devices {
		for _, k := range d.Adapter().DEKs() {
			list = append(list, officer.DEK{Device: d.Name(), Number: k.Number, Bits: k.Bits, Process: d.Process(k.Context)})
		}
	}
	return list
}

// FailDEK implements officer.Devices.
func (b *runner) FailDEK(device string, number uint32) error {
	b.mu.RLock()
	devices := b.devices
	b.mu.RUnlock()
	for _, d := range devices {
		if d.Name() == device {
			return d.Adapter().FailDEK(number)
		}
	}
	return operr.New("dek fail", syscall.ENOENT, "device %q does not exist", device)
}

// node returns the device file with a path, or nil.
func (b *runner) node(path string) intercept.Node {
	if path == uverbs.CMNode {
		return cmNode{b.manager}
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, d := range b.devices {
		if d.Node() == path {
			return uverbsNode{d}
		}
	}
	return nil
}

// refresh brings the file with a path up to date before a program opens it.
func (b *runner) refresh(path string) {
	b.mu.RLock()
	devices := b.devices
	b.mu.RUnlock()
	uverbs.Refresh(b.root, devices, path)
}

// loopbacks is the number of addresses of 127.0.0.0/8 that are tried.
const loopbacks = 250

// openDevice opens one device: on its address, or on the first free loopback
// address if it has none.
func (b *runner) openDevice(name string, addr netip.Addr) (rdmacm.Device, error) {
	if addr.IsValid() {
		d, err := b.openAt(name, addr)
		switch {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			err = fmt.Errorf("run: --device %v is no address of this host", addr)
		case errors.Is(err, syscall.EADDRINUSE):
			err = fmt.Errorf("run: --device %v has a device already: UDP port %d is taken by another program", addr, roce.UDPPort)
		case err != nil:
			err = fmt.Errorf("run: --device %v: %w", addr, err)
		}
		return d, err
	}
	next := netip.MustParseAddr("127.0.0.1")
	for range loopbacks {
		d, err := b.openAt(name, next)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return d, err
		}
		next = next.Next()
	}
	return rdmacm.Device{}, fmt.Errorf("run: %d addresses from 127.0.0.1 on have devices already: name one with --device", loopbacks)
}

// openAt opens a device and its communication manager.
func (b *runner) openAt(name string, addr netip.Addr) (rdmacm.Device, error) {
	none, f, index := rdmacm.Device{}, b.flags, len(b.devices)
	conn, err := udp.Listen(netip.AddrPortFrom(addr, roce.UDPPort), nil)
	if err != nil {
		return none, err
	}
	var lost func(packetconn.Datagrams)
	if b.recorder != nil {
		recorded := b.recorder.Wrap(conn)
		lost = func(d packetconn.Datagrams) { b.recorder.Lost(recorded, d) }
		conn = recorded
	}
	if f.fault.text != "" {
		conn = f.fault.wrap(conn, index, lost)
	}
	cfg := uverbs.Config{Name: name, Index: index, Addr: addr}
	if len(b.tracers) > 0 {
		cfg.Refused = b.tracers.Refused
	}
	hw := adapter.Config{Addr: addr, Conn: conn, KeyStore: b.store, Strict: f.strict, SingleBlock: f.profile == "single-block", AdapterReports: f.reports == "adapter"}
	switch {
	case b.summary != nil:
		hw.Tracer = trace.Tee{b.summary, b.tracers}
	case len(b.tracers) > 0:
		hw.Tracer = b.tracers
	}
	var service *cmcore.Service // set before a program has the device
	hw.PeerCaps = func(peer netip.Addr, qpn uint32) uint32 { return service.Caps(peer, qpn) }
	d, err := uverbs.Open(cfg, hw)
	if err != nil {
		conn.Close()
		return none, err
	}
	s, c, err := openService(d)
	if err != nil {
		d.Close()
		return none, err
	}
	service = s
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed { // the program has ended
		s.Close()
		d.Close()
		return none, net.ErrClosed
	}
	b.devices, b.services = append(b.devices, d), append(b.services, s)
	return c, nil
}

// keyStore returns the key store that --crypto, --kek and --credential describe.
func (f *runFlags) keyStore() (*dek.Store, error) {
	switch f.crypto {
	case "plaintext":
		if len(f.keks)+len(f.credentials) > 0 {
			return nil, errors.New("run: --kek and --credential belong to --crypto wrapped")
		}
		return dek.NewStore(dek.Plaintext), nil
	case "wrapped":
	default:
		return nil, fmt.Errorf("run: --crypto %q: the import modes are plaintext and wrapped", f.crypto)
	}
	store := dek.NewStore(dek.Wrapped)
	for _, list := range []struct {
		flag  string
		names []string
		parse func([]byte) ([]byte, error)
		add   func(uint32, []byte) error
	}{{"--kek", f.keks, dek.ParseKEK, store.AddKEK}, {"--credential", f.credentials, dek.ParseWrapped, store.AddCredential}} {
		for _, s := range list.names {
			id, name, err := numberedFile(s)
			if err != nil {
				return nil, fmt.Errorf("run: %s %q: %w", list.flag, s, err)
			}
			key, err := readKeyFile(fileFlag(name), true, list.parse)
			if err != nil {
				return nil, err
			}
			err = list.add(id, key)
			clear(key)
			if err != nil {
				return nil, fmt.Errorf("run: %s %q: %w", list.flag, s, reason(err))
			}
		}
	}
	return store, nil
}
