package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/nbd/image"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/identity"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/internal/tool/nvmet/overrdma"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

func newTarget() *cobra.Command {
	var f targetFlags
	c := &cobra.Command{
		Use:     "target [--sig SIG] [--pi TYPE] [--crypto OP ...] [flags] IMAGE...",
		GroupID: groupDevice,
		Short:   "Serve images as namespaces of an NVMe over RDMA target",
		Long: `Target serves each IMAGE, a file or block device, as a namespace of an NVMe over Fabrics
subsystem, to hosts that reach this host's address by RDMA: Linux's nvme-rdma on an
adapter, on soft-RoCE or in a guest of 'softmkey pci', and SPDK.

--sig and the crypto flags describe IMAGE as --wire and the crypto flags of 'softmkey tx'
do; without them IMAGE is clean. --pi is what the hosts see:

    0           blocks without protection information: the target checks the fields of
                IMAGE, and a bad block is an unrecovered read error (0x281)
    1, 2, 3     blocks with protection information of that type, 8 bytes after each
                block. A memory key on each transfer checks what the host's command
                (PRCHK) asks for, and adds or removes the fields (PRACT). A bad block is a
                guard, application or reference tag check error (0x282 to 0x284).

An IMAGE whose fields are T10-DIF has type 1, or 3 if its reference tags are constant,
unless --pi says otherwise; its fields are those that the hosts have written. Other images
have type 0. If one has --pi 1, its fields exist on the wire only, and application tags
are not kept.

--damage makes a block bad, to see what hosts do then. It concerns what hosts read of
IMAGE, whose bytes do not change; with wire: it happens between the target's key and the
host, so the side that receives finds it.

    --damage guard@4711           the guard of block 4711, as if it were so on the medium
    --damage ref@100+8,once       only the first command that reads one of these blocks
    --damage wire:app@0           PART is data, guard, app or ref
    --delay 2s@4096+128           commands that concern these blocks wait

The first line on standard output is the address, the port and the subsystem's name. Each
command that ended with a media error is a line on standard error with namespace, block
and status. After a signal the target ends its connections, flushes each IMAGE and ends
with exit status 0. IMAGE is locked against a second server. What a host has flushed, or
written with FUA, stays after a power loss.`,
		Example: `  softmkey target --sig t10dif disk.dif --nqn nqn.2026-01.org.example:disk
  softmkey target --pi 1 --device 192.0.2.1 disk.img
  softmkey target --sig t10dif --damage wire:guard@4711,once --damage data@8+8 disk.dif
  nvme discover -t rdma -a 192.0.2.1 -s 4420`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return operands("IMAGE")(c, args)
			}
			return nil
		},
		RunE: f.run,
	}
	f.bind(c)
	return c
}

// targetFlags are the flags of target.
type targetFlags struct {
	serverFlags
	format         sigFlag
	pi, block      choiceFlag
	crypto         cryptoFlags
	device         deviceFlag
	port           uint16
	nqn            string
	hosts, uuids   []string
	serial         string
	damage, delays []string
	pcap           fileFlag
}

func (f *targetFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	f.format.ofKey = true
	f.format.bind(c, "sig", "signature that IMAGE has (default none)")
	f.pi = choiceFlag{choices: []string{"0", "1", "2", "3"}}
	f.pi.bind(c, "pi", "type of the protection information that the hosts see (default: that of T10-DIF in IMAGE, otherwise 0)")
	f.block = choiceFlag{choices: []string{"512", "4096"}, value: "512"}
	f.block.bind(c, "block", "bytes of a block of an IMAGE without --sig")
	f.crypto.bind(c)
	bindDevice(c, &f.device, "device", "address of the device, or its interface (default: the address from which this host reaches others)")
	flags.Uint16Var(&f.port, "port", 4420, "`PORT` of the RDMA connection manager")
	flags.StringVar(&f.nqn, "nqn", "nqn.2026-01.org.softmkey:target", "name of the subsystem, an `NQN`")
	flags.StringArrayVar(&f.hosts, "host", nil, "name of a host, an `NQN`, that may connect; may be given several times (default: all)")
	flags.StringArrayVar(&f.uuids, "uuid", nil, "`UUID` of a namespace, in the order of IMAGE; may be given several times (default: one that comes from this machine and the file)")
	flags.StringVar(&f.serial, "serial", "", "`SERIAL` number of the controllers (default: one that comes from --nqn and the namespaces)")
	flags.StringArrayVar(&f.damage, "damage", nil, "make blocks bad, `DAMAGE`: [wire:]PART@LBA[+N][,once]; may be given several times")
	completeList(c, "damage", "data@", "guard@", "app@", "ref@", "wire:data@", "wire:guard@", "wire:app@", "wire:ref@")
	flags.StringArrayVar(&f.delays, "delay", nil, "delay commands, `DELAY`: TIME[@LBA[+N]]; may be given several times")
	flags.Var(&f.pcap, "pcap", "record the packets to a file")
	annotate(c, writesFile, "pcap")
	f.serverFlags.bind(c, "print the address and the outcome (on standard output) and failed commands (on standard error) as JSON, one object per line")
}

func (f *targetFlags) run(c *cobra.Command, args []string) (err error) {
	end := queueLines(c, f.asJSON)
	defer func() { err = end(err) }()
	medium, key, err := f.medium(c)
	if err != nil {
		return err
	}
	defer key.Close()
	o := nvmet.Options{NQN: f.nqn, Hosts: f.hosts, CapsuleData: overrdma.CapsuleData}
	report := &targetReport{json: f.asJSON, c: c}
	ids, err := f.identifiers(c, len(args))
	if err != nil {
		return err
	}
	o.Failed = report.failed
	for i, name := range args {
		for _, other := range args[:i] {
			if outfile.Collides(name, other) {
				return usage(c, fmt.Errorf("%s and %s are the same file", other, name))
			}
		}
		ns, closeImage, err := f.open(c, name, medium)
		if err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, closeImage()) }()
		if i < len(f.uuids) {
			ns.ID = ids[i]
		} else {
			ids = append(ids, ns.ID)
		}
		if at := slices.Index(ids, ns.ID); at < i {
			return fmt.Errorf("%s and %s have the same identifier %x: give them a --uuid each", args[at], name, ns.ID)
		}
		o.Namespaces = append(o.Namespaces, ns)
	}
	o.Serial = cmp.Or(f.serial, identity.Serial(f.nqn, ids))
	target, err := nvmet.New(o)
	if err != nil {
		return usage(c, err)
	}
	server, done, err := f.listen(c, target)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, done()) }()
	at := netip.AddrPortFrom(f.device.Addr, server.Addr().Port())
	if f.asJSON {
		encodeJSON(c.OutOrStdout(), map[string]any{"command": "target", "address": at.Addr().String(), "port": at.Port(), "nqn": f.nqn, "namespaces": len(args)})
	} else {
		fmt.Fprintf(c.OutOrStdout(), "%s %d %s\n", at.Addr(), at.Port(), f.nqn)
	}
	err = server.Serve(c.Context())
	var stopped signalError
	if errors.As(err, &stopped) {
		err = nil // a signal is the normal end of a server
	}
	if f.asJSON {
		encodeOutcome(c.OutOrStdout(), report.outcome(), err == nil)
	}
	return err
}

// identifiers returns those of --uuid, for n namespaces, and checks --serial and --nqn.
func (f *targetFlags) identifiers(c *cobra.Command, n int) (ids []identity.ID, err error) {
	if len(f.uuids) > n {
		return nil, usage(c, fmt.Errorf("--uuid %s: there are %d of them, but only %d images", f.uuids[n], len(f.uuids), n))
	}
	for _, v := range f.uuids {
		id, err := identity.Parse(v)
		if err != nil {
			return nil, usage(c, fmt.Errorf("--uuid %s: %w", v, err))
		}
		ids = append(ids, id)
	}
	if len(f.serial) > nvme.SerialSize || strings.ContainsFunc(f.serial, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, usage(c, fmt.Errorf("--serial %q: must be at most %d characters of ASCII", f.serial, nvme.SerialSize))
	}
	if lineout.Printable(f.nqn) != f.nqn {
		return nil, usage(c, fmt.Errorf("--nqn %q: must be printable UTF-8", f.nqn))
	}
	return ids, nil
}

// listen opens the device and listens for hosts. done closes the device and the recording.
func (f *targetFlags) listen(c *cobra.Command, target *nvmet.Target) (server *overrdma.Server, done func() error, err error) {
	if !f.device.IsValid() {
		if f.device.Addr, err = device.Address(device.Auto); err != nil {
			return nil, nil, usage(c, fmt.Errorf("--device is missing: %w", err))
		}
	}
	o := device.Options{Listen: near}
	closing, abort := func() error { return nil }, func() error { return nil }
	if f.pcap != "" {
		o.Listen = nil // a recording needs packets on the network
		if o.Recorder, err = pcap.Create(string(f.pcap), &pcap.Options{Context: ending}); err != nil {
			return nil, nil, err
		}
		closing, abort = o.Recorder.Close, o.Recorder.Abort
	}
	dev, err := device.Open(f.device.Addr, o)
	if err != nil {
		return nil, nil, cmp.Or(err, abort())
	}
	server, err = overrdma.Listen(dev, f.port, target, func(peer net.Addr, err error) {
		connectionEnded(c.ErrOrStderr(), f.asJSON, peer.String(), err)
	})
	if err != nil {
		dev.Close()
		_ = abort()
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("--port %d: another listener of the device has it", f.port)
		}
		return nil, nil, err
	}
	return server, func() error { return cmp.Or(dev.Close(), closing()) }, nil
}

// medium returns how IMAGE is made of the blocks that the hosts see. key is the data encryption key; nil: none.
func (f *targetFlags) medium(c *cobra.Command) (m targetMedium, key *dek.DEK, err error) {
	stored := f.format.domain()
	m.block = f.format.format.Block()
	if stored == nil {
		m.block = map[string]int{"512": 512, "4096": 4096}[f.block.value]
	} else if c.Flags().Changed("block") {
		return m, nil, usage(c, fmt.Errorf("--block %s with --sig, which names the block size", f.block.value))
	}
	dif := stored != nil && stored.Type == sig.T10DIF
	switch {
	case f.pi.value != "":
		m.pi = f.pi.value[0] - '0'
	case dif && stored.Remaps():
		m.pi = 1
	case dif:
		m.pi = 3
	}
	if m.pi == 2 && (!dif || stored.RefTag != 0 || !stored.Remaps()) {
		return m, nil, usage(c, errors.New("--pi 2: the hosts choose the reference tags, so IMAGE must keep them: --sig t10dif, whose fields count from 0"))
	}
	var s *mkey.Signature
	if m.pi > 0 || stored != nil {
		s = &mkey.Signature{Wire: stored}
	}
	if m.pi > 0 {
		m.present(s)
	}
	crypto, key, err := f.crypto.attributes(c, s)
	if err != nil {
		return m, nil, err
	}
	m.job = mkeyio.StreamJob{Direction: mkeyio.TX, Signature: s, Crypto: crypto}
	m.stride = m.block
	if stored != nil {
		m.stride = stored.Stride()
	}
	return m, key, nil
}

// targetMedium is how IMAGE is made of the blocks that the hosts see.
type targetMedium struct {
	job    mkeyio.StreamJob
	pi     uint8
	block  int
	stride int // from one block of IMAGE to the next, unless it is encrypted with its fields
}

// present gives a signature protection information as its memory domain. Parts of a field that IMAGE
// stores as they are, are not checked here: the memory keys of the transfers check them if a command
// asks for it. The other parts are checked on the way to and from IMAGE.
func (m *targetMedium) present(s *mkey.Signature) {
	s.Memory = &sig.Format{Type: sig.T10DIF, BlockSize: m.block, Flags: sig.Type1}
	if m.pi == 3 {
		s.Memory.Flags = sig.Type3
	}
	kept := sig.Mask(0)
	if s.Wire != nil && s.Wire.Type == sig.T10DIF {
		kept = sig.MaskApp
		if s.Wire.Guard == sig.GuardCRC && (s.Wire.Seed == sig.SeedDefault || s.Wire.Seed == sig.SeedZeros) {
			kept |= sig.MaskGuard
		}
		if s.Wire.RefTag == 0 && s.Wire.Remaps() == s.Memory.Remaps() {
			kept |= sig.MaskRef
		}
		s.CopyMask = &kept
	}
	hosts, images := (sig.MaskGuard|sig.MaskRef)&^kept, sig.MaskAll&^kept
	if m.pi == 3 {
		hosts &^= sig.MaskRef
	}
	s.MemoryCheckMask = &hosts
	if s.Wire != nil {
		s.WireCheckMask = &images
	}
}

// open opens and locks an image.
func (f *targetFlags) open(c *cobra.Command, name string, m targetMedium) (ns *nvmet.Namespace, done func() error, err error) {
	ns = &nvmet.Namespace{BlockSize: m.block, PI: m.pi, ReadOnly: f.readOnly, Checked: m.pi == 0 && m.job.Signature != nil}
	for _, v := range f.damage {
		d, err := nvmet.ParseDamage(v)
		switch {
		case err != nil:
			return nil, nil, usage(c, fmt.Errorf("--damage %s: %w", v, err))
		case d.Part != nvmet.Data && m.pi == 0 && (d.Wire || m.stride < m.block+8):
			return nil, nil, usage(c, fmt.Errorf("--damage %s: there is no T10-DIF whose part it could be", v))
		}
		ns.Damage = append(ns.Damage, d)
	}
	for _, v := range f.delays {
		d, err := nvmet.ParseDelay(v)
		if err != nil {
			return nil, nil, usage(c, fmt.Errorf("--delay %s: %w", v, err))
		}
		ns.Delay = append(ns.Delay, d)
	}
	file, size, err := openImage(name, f.readOnly, f.mounted)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	view, err := image.New(image.File{File: file}, image.Options{
		Job: m.job, Size: size, ReadOnly: f.readOnly,
		Bad: func(*mkey.BadBlock) {}, Kept: func(uint64) {}, // the command that needed the block reports it
		Failed: func(op string, offset int64, err error) {
			imageFailed(c.ErrOrStderr(), f.asJSON, name, op, offset, err)
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	stride := int64(m.block)
	if m.pi > 0 {
		stride += 8
		if m.stride == m.block {
			ns.Holes = image.File{File: file}.Holes
		}
	}
	if ns.ID, err = identity.Of(file); err != nil {
		return nil, nil, err
	}
	ns.Store, ns.Blocks = view, uint64(view.Size()/stride)
	if ns.Blocks == 0 {
		return nil, nil, fmt.Errorf("%s: has %d bytes, which are less than a block", name, size)
	}
	for i, d := range ns.Damage {
		if d.First+d.Count > ns.Blocks {
			return nil, nil, usage(c, fmt.Errorf("--damage %s: block %d is not in %s, which has %d blocks", f.damage[i], d.First+d.Count-1, name, ns.Blocks))
		}
	}
	if rest := view.Size() % stride; rest > 0 && !f.asJSON {
		message(c.ErrOrStderr(), "warning: %s: the last %d bytes of data are no whole block: the hosts do not see them", name, rest)
	}
	return ns, func() error { return cmp.Or(view.Close(), file.Close()) }, nil
}

// targetReport reports commands that ended with a media error.
type targetReport struct {
	json bool
	c    *cobra.Command

	mu    sync.Mutex // guards the following fields
	count uint64
	first *targetFailure
}

// targetFailure is such a command as JSON.
type targetFailure struct {
	Host      string        `json:"host"`
	Namespace uint32        `json:"namespace"`
	LBA       uint64        `json:"lba"`
	Opcode    string        `json:"opcode"`
	Status    string        `json:"status"`
	Bad       *filecopy.Bad `json:"bad"`
}

// failed reports a command.
func (r *targetReport) failed(f nvmet.Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	line := &targetFailure{
		f.Host, f.NSID, f.LBA, fmt.Sprintf("%#x", f.Opcode), fmt.Sprintf("%#x", uint16(f.Status)&0x7ff), filecopy.NewBad(f.Bad),
	}
	if r.first == nil {
		r.first = line
	}
	if r.json {
		encodeJSON(r.c.ErrOrStderr(), line)
		return
	}
	what := ""
	if f.Bad != nil {
		what = fmt.Sprintf(": stored %#x, computed %#x", f.Bad.Sig.Stored, f.Bad.Sig.Computed)
	}
	message(r.c.ErrOrStderr(), "namespace %d, block %d: %v%s (host %q)", f.NSID, f.LBA, f.Status, what, f.Host)
}

// outcome returns the final report as JSON.
func (r *targetReport) outcome() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return struct {
		Command string         `json:"command"`
		Errors  uint64         `json:"errors"`
		First   *targetFailure `json:"first_error"`
	}{"target", r.count, r.first}
}
