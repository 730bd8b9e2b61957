package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

func newCopy() *cobra.Command {
	var f copyFlags
	c := &cobra.Command{
		Use: `copy [flags] SRC DST
  softmkey copy --listen ADDR[:PORT] [flags] DST
  softmkey copy --connect HOST[:PORT] [flags] SRC`,
		GroupID: groupDevice,
		Short:   "Copy a file between two devices, through a memory key on each side",
		Long: `Copy sends a file over RoCEv2 from one device to another. SRC is the memory of the
sending device, DST is the memory of the receiving device, the peer. A memory key on
each side, between its memory and the wire, adds, checks, strips and converts
signatures, encrypts and decrypts, according to the flags. A side whose key would do
nothing uses a plain region.

The two devices are two loopback addresses of this process, with real UDP packets
between them, unless --listen and --connect split them over two processes or hosts.
Then each flag may be given to either side; a flag that both sides get must have the
same value. The sides meet on TCP port ` + strconv.Itoa(rendezvous.Port) + `, the data goes over UDP port 4791. With
--cm on both sides they meet by the connection manager, on the port of that number in
rdma_cm's RDMA_PS_TCP, and need UDP port 4791 only.

The flags describe the operations on the data on its way from SRC to DST: --crypto and
--order before the wire, --peer-crypto and --peer-order after it.

    SRC --mem | --crypto, --order | --wire | --peer-crypto, --peer-order | --peer-mem DST

Without --peer-crypto the peer of a sender that encrypts stores the ciphertext; if the
fields are encrypted too (--order before), it stores the stream of the wire. Without
--crypto the sender sends SRC as it is to a peer that decrypts.

A bad signature ends the copy with exit status 1; there is no DST then. One line on
standard error names the side whose key found it. With --keep-going the copy
continues, as in hardware, and each key reports the first bad block of each chunk.
--flip flips a bit of one byte on the wire, after the sender's key.

A listener serves several connections at a time and waits until it agrees with a sender
on the flags. The sender's device must have the address from which its connection comes.`,
		Example: `  softmkey copy README.md copy.md --wire t10dif
  softmkey copy README.md copy.md --wire t10dif --flip 1000
  softmkey copy disk.img copy.img --op read --mem none --wire crc32c:4096 --pcap copy.pcapng
  softmkey copy disk.img disk.enc --wire t10dif --crypto encrypt --order before --dek disk.key
  softmkey copy disk.enc disk.img --wire t10dif --peer-crypto decrypt --peer-order after --dek disk.key
  softmkey copy --listen 192.0.2.1 copy.img
  softmkey copy --connect 192.0.2.1 --wire t10dif disk.img`,
		Args: f.operands,
		RunE: f.run,
	}
	f.bind(c)
	return c
}

// copyFlags are the flags of copy.
type copyFlags struct {
	outputFlags
	peerFlags
	json, quiet, keepGoing bool

	op       choiceFlag
	keys     keyFlags
	mtu      choiceFlag
	dek, kek fileFlag
	flip     parsed[int64]
	pcap     fileFlag
	from, to deviceFlag
	summary  summaryFlag
}

func (f *copyFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	f.op.choices = []string{keyplan.Write, keyplan.Send, keyplan.Read}
	f.op.bind(c, "op", "operation that moves the data: RDMA WRITE or SEND of the sender, or RDMA READ of the receiver (default write)")
	f.keys.bind(c)
	bindMTU(c, &f.mtu)
	flags.Var(&f.dek, "dek", "data encryption key: 32 or 64 bytes, or their hexadecimal digits; with --kek, wrapped")
	f.kek.bindKEK(c)
	offsets.bind(c, &f.flip, "flip", "flip a bit of the byte at that offset on the wire, after the sender's key")
	flags.Var(&f.pcap, "pcap", "record the packets of the sending device (with --listen, of the receiving device) as pcapng")
	annotate(c, writesFile, "pcap")
	bindDevice(c, &f.from, "from", "address of the sending device (default 127.0.0.1, or the next that is free)")
	bindDevice(c, &f.to, "to", "address of the receiving device (default: the one after --from, or the next that is free)")
	flags.StringVar(&f.listen, "listen", "", "receive from another process, which connects to `ADDR[:PORT]`")
	flags.StringVar(&f.connect, "connect", "", "send to another process, which listens at `HOST[:PORT]`")
	f.peerFlags.bind(c)
	bindDevice(c, &f.device, "device", "address of this side's device, with --listen or --connect (default: the address of the connection)")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "continue after a bad block, report the first bad block of each chunk, and write DST nevertheless")
	f.outputFlags.bind(c)
	flags.BoolVar(&f.json, "json", false, "report bad blocks (on standard error) and the outcome (on standard output, or on standard error if DST is '-') as JSON, one object per line")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	f.summary.bind(c, "copy")
	exclusive(c, "listen", "connect")
}

// operands checks the operands, and refuses flags that exclude each other.
func (f *copyFlags) operands(c *cobra.Command, args []string) error {
	names, line := []string{"SRC", "DST"}, "softmkey copy [flags] SRC DST"
	local := []string{"from", "to"}
	var not []string
	why := "is for a copy within this process: use --device"
	switch {
	case f.listen != "":
		names, not, line = names[1:], local, "softmkey copy --listen ADDR[:PORT] [flags] DST"
		if c.Flags().Changed("flip") {
			return usage(c, errors.New("--flip is the sender's: give it with --connect"))
		}
	case f.connect != "":
		names, not, line = names[:1], local, "softmkey copy --connect HOST[:PORT] [flags] SRC"
	default:
		not, why = []string{"device", "peer-device"}, "goes with --listen or --connect: use --from and --to"
	}
	if err := f.peerFlags.check(c); err != nil {
		return err
	}
	for _, name := range not {
		if c.Flags().Changed(name) {
			return usage(c, fmt.Errorf("--%s %s", name, why))
		}
	}
	if at := slices.Index(args, ""); at >= 0 && at < len(names) {
		return usage(c, fmt.Errorf("%s is an empty name: usage: %s", names[at], line))
	}
	switch {
	case len(args) < len(names):
		return usage(c, fmt.Errorf("%s is missing: usage: %s", names[len(args)], line))
	case len(args) > len(names):
		return usage(c, fmt.Errorf("%q is one operand too many: usage: %s", args[len(names)], line))
	}
	return nil
}

// terms returns the terms that the given flags describe.
func (f *copyFlags) terms(c *cobra.Command) keyplan.Terms {
	t := f.keys.terms(c)
	t.Op, t.MTU = f.op.value, f.mtu.value
	return t
}

// openRecorder creates the recording of --pcap, or returns nil without that flag.
func (f *copyFlags) openRecorder() (*pcap.Recorder, error) {
	if f.pcap == "" {
		return nil, nil
	}
	return pcap.Create(string(f.pcap), &pcap.Options{Context: ending})
}

func (f *copyFlags) run(c *cobra.Command, args []string) error {
	if err := f.summary.open(); err != nil {
		return err
	}
	defer f.summary.close()
	recorder, err := f.openRecorder()
	if err != nil {
		return err
	}
	r := copyRun{copyFlags: f, ctx: c.Context(), c: c, recorder: recorder}
	switch {
	case f.listen != "":
		err = r.receive(args[0])
	case f.connect != "":
		err = r.send(args[0])
	default:
		err = r.local(args[0], args[1])
	}
	err = cmp.Or(err, r.summarize())
	r.close()
	switch {
	case recorder == nil:
	case err != nil && recorder.Packets() == 0:
		_ = recorder.Abort() // leaves an earlier recording of that name as it was
	default:
		err = cmp.Or(err, recorder.Close())
	}
	return err
}

// copyRun is a copy with its open files, devices and keys.
type copyRun struct {
	*copyFlags
	ctx      context.Context
	c        *cobra.Command
	recorder *pcap.Recorder
	in       *os.File
	size     int64 // bytes of in; -1: not known
	out      *outfile.File
	toStdout bool // out is standard output
	devices  []*verbs.Device
	secret   filecopy.Secret
	key      *dek.DEK
	bar      *progress

	badBlocks atomic.Uint64
}

// summarize prints the summary if --summary was given.
func (r *copyRun) summarize() error {
	table := r.summary.table()
	if table == nil {
		return nil
	}
	operation := map[string]rdma.Opcode{"": rdma.OpRDMAWrite, keyplan.Write: rdma.OpRDMAWrite, keyplan.Send: rdma.OpSend, keyplan.Read: rdma.OpRDMARead}[r.op.value]
	for _, d := range r.devices {
		table.Resent(operation.String(), d.Counters().Retransmitted)
	}
	table.BadSignature(r.badBlocks.Load())
	return r.summary.write(r.c.ErrOrStderr(), table.Report())
}

// close closes everything except for the output.
func (r *copyRun) close() {
	r.bar.end()
	if r.in != nil {
		r.in.Close()
	}
	for _, d := range r.devices {
		_ = d.Close()
	}
	r.key.Close()
}

func (r *copyRun) openSource(name string) (err error) {
	if r.in, err = openInput(name); err != nil {
		return err
	}
	r.size = -1
	if info, err := r.in.Stat(); err == nil && info.Mode().IsRegular() {
		at, err := r.in.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		// The size of a file such as /proc/cpuinfo is 0 although it has content.
		if info.Size() > at {
			r.size = info.Size() - at
		}
	}
	return nil
}

// createOutput creates the output file. If secret is set, only its owner may read it: it will
// hold decrypted data.
func (r *copyRun) createOutput(name string, secret bool) (err error) {
	if r.out, err = r.create(name, r.in, secret); err == nil {
		r.toStdout = r.out.IsStdout()
	}
	return err
}

func (r *copyRun) openDevice(addr netip.Addr, search bool, record bool) (*verbs.Device, error) {
	o := device.Options{Search: search}
	if record {
		o.Recorder = r.recorder
	}
	dev, err := device.Open(addr, o)
	if err == nil {
		r.devices = append(r.devices, dev)
	}
	return dev, err
}

// openKey reads the data encryption key if one of the memory keys needs it.
func (r *copyRun) openKey(keys ...*keyplan.Key) error {
	needed := false
	for _, k := range keys {
		needed = needed || k.Crypto != nil
	}
	switch {
	case !needed && r.dek != "":
		return errors.New("--dek, but this side neither encrypts nor decrypts: give --crypto or --peer-crypto")
	case !needed:
		return nil
	case r.dek == "":
		return errors.New("this side encrypts or decrypts and needs a key: --dek FILE ('softmkey dek generate' makes one)")
	}
	if r.key != nil {
		return nil
	}
	var err error
	if r.key, r.secret.KeyTag, err = readDEK(r.dek, r.kek, nil); err != nil {
		return err
	}
	r.secret.DEK = r.key
	return nil
}

// check returns the errors that are known before the copy begins.
func (r *copyRun) check(p *keyplan.Plan) error {
	warned := map[string]bool{}
	for _, s := range []*mkey.Signature{p.Sender.Signature, p.Receiver.Signature} {
		if s == nil {
			continue
		}
		for _, f := range []*sig.Format{s.Memory, s.Wire} {
			if f != nil && !warned[f.String()] {
				warned[f.String()] = true
				(&reporter{json: r.json, errors: r.c.ErrOrStderr()}).warnExempt(f)
			}
		}
	}
	if r.flip.given {
		if err := p.CheckFlip(r.flip.value, r.size); err != nil {
			return err
		}
	}
	if r.size < 0 {
		return nil
	}
	return p.Check(r.size)
}

// local copies between two devices of this process.
func (r *copyRun) local(src, dst string) (err error) {
	p, err := keyplan.New(r.terms(r.c), 0)
	if err != nil {
		return usage(r.c, err)
	}
	if err := r.openSource(src); err != nil {
		return err
	}
	if err := r.check(p); err != nil {
		return err
	}
	if err := r.openKey(&p.Sender, &p.Receiver); err != nil {
		return err
	}
	from, to, err := r.pair()
	if err != nil {
		return err
	}
	if err := r.createOutput(dst, p.Decrypts()); err != nil {
		return err
	}
	r.start(inputName(src), r.size)
	sent, received, err := filecopy.Local(r.ctx, from, to, p, r.sender(), r.receiver())
	return r.end(err, src, dst, func() filecopy.Report { return filecopy.NewReport(p, from, to, sent, received) })
}

// pair opens both devices.
func (r *copyRun) pair() (from, to *verbs.Device, err error) {
	if r.from.IsValid() && r.from == r.to {
		return nil, nil, usage(r.c, fmt.Errorf("--from %v --to %v: must be two addresses, one for each device", r.from.Addr, r.to.Addr))
	}
	addr, search := r.from.Addr, !r.from.IsValid()
	if search {
		addr = netip.MustParseAddr("127.0.0.1")
	}
	if from, err = r.openDevice(addr, search, true); err != nil {
		return nil, nil, err
	}
	if addr, search = r.to.Addr, !r.to.IsValid(); search {
		if addr = from.Addr().Next(); !from.Addr().IsLoopback() || !from.Addr().Is4() {
			return nil, nil, usage(r.c, errors.New("--to is missing: the address of the receiving device"))
		}
	}
	to, err = r.openDevice(addr, search, false)
	return from, to, err
}

// side returns the configuration that both sides have.
func (r *copyRun) side(name string) filecopy.SideConfig {
	return filecopy.SideConfig{
		Secret: r.secret, KeepGoing: r.keepGoing, Retry: r.retry(), Progress: r.progress, Bad: r.bad(name), Summary: r.summary.table(),
	}
}

// sender returns the configuration of the sending side.
func (r *copyRun) sender() filecopy.SenderConfig {
	return filecopy.SenderConfig{SideConfig: r.side("sender"), Src: r.in, Size: r.size, Flip: r.flip.or(-1)}
}

// receiver returns the configuration of the receiving side.
func (r *copyRun) receiver() filecopy.ReceiverConfig {
	return filecopy.ReceiverConfig{
		SideConfig: r.side("receiver"), Dst: r.out,
		Commit: func() error {
			out := r.out
			r.out = nil
			return out.Commit()
		},
	}
}

// send copies to another process.
func (r *copyRun) send(src string) (err error) {
	if err := r.openSource(src); err != nil {
		return err
	}
	open := func(local netip.Addr) (*verbs.Device, error) {
		addr, search := r.ownDevice(local)
		return r.openDevice(addr, search, true)
	}
	conn, dev, err := r.meetPeer(r.ctx, open)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := filecopy.Begin(r.ctx, conn, filecopy.HelloSender(r.terms(r.c), r.size), r.peerDevice.Addr, func(p *keyplan.Plan) (filecopy.Peer, error) {
		err := cmp.Or(r.check(p), r.openKey(&p.Sender))
		if err != nil {
			return nil, err
		}
		if dev == nil {
			if dev, err = open(rendezvous.LocalAddr(conn)); err != nil {
				return nil, err
			}
		}
		side, err := filecopy.NewSender(dev, p, r.sender())
		if err != nil {
			return nil, err
		}
		return side, nil
	})
	if err != nil {
		return r.explain(r.c, err)
	}
	defer s.Close()
	r.start(inputName(src), r.size)
	o, err := s.Run(r.ctx)
	return r.end(err, src, "", func() filecopy.Report { return filecopy.NewReport(s.Plan, dev, nil, o, nil) })
}

// receive copies from another process.
func (r *copyRun) receive(dst string) (err error) {
	at, err := r.listenAddr(r.c)
	if err != nil {
		return err
	}
	addr, search := r.ownDevice(at.Addr())
	dev, err := r.openDevice(addr, search, true)
	if err != nil {
		return err
	}
	if err := r.createOutput(dst, false); err != nil {
		return err
	}
	s, err := r.accept(at, dev)
	if err != nil {
		return r.end(err, "", dst, nil)
	}
	defer s.Close()
	if s.Plan.Decrypts() {
		if err := r.out.Restrict(); err != nil {
			return r.end(err, "", dst, nil)
		}
	}
	r.start(dst, s.Plan.PeerSize(s.Size))
	o, err := s.Run(r.ctx)
	return r.end(err, "", dst, func() filecopy.Report { return filecopy.NewReport(s.Plan, nil, dev, nil, o) })
}

// accept waits for a sender that agrees with this side on the terms of the copy.
func (r *copyRun) accept(at netip.AddrPort, dev *verbs.Device) (*filecopy.Session, error) {
	l, err := r.meet(at, dev)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards the data encryption key, which the first conversation reads
	prepare := func(p *keyplan.Plan) (filecopy.Peer, error) {
		mu.Lock()
		defer mu.Unlock()
		if err := r.openKey(&p.Receiver); err != nil {
			return nil, err
		}
		side, err := filecopy.NewReceiver(dev, p, r.receiver())
		if err != nil {
			return nil, err
		}
		return side, nil
	}
	mine := filecopy.HelloReceiver(r.terms(r.c))
	return rendezvous.Accept(r.ctx, l, func(ctx context.Context, c *jsonline.Conn) (*filecopy.Session, error) {
		return filecopy.Begin(ctx, c, mine, r.peerDevice.Addr, prepare)
	}, sentAway(r.c))
}
