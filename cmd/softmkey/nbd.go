package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/filelock"
	"github.com/softmkey/softmkey/internal/tool/nbd"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

func newNBD() *cobra.Command {
	var f nbdFlags
	c := &cobra.Command{
		Use:     "nbd [--sig SIG] [--crypto OP ...] [flags] IMAGE",
		GroupID: groupFiles,
		Short:   "Serve a protected or encrypted image as a block device (NBD)",
		Long: `Nbd serves IMAGE, a file or block device as protect or tx writes it, to clients of the
network block device protocol: qemu, nbdcopy, nbd-client, fio. The clients see the clean
data. Reads check the fields and decrypt, writes sign and encrypt.

--sig and the crypto flags describe IMAGE as --wire and the crypto flags of 'softmkey tx'
do; at least one of --sig and --crypto is needed. With --present protected it is the other
way round: IMAGE is clean, and the clients see it with the fields of --sig. Blocks that
they write must then have good fields.

The first line on standard output is the URI of the device. After a signal, nbd finishes
the requests that are being executed, flushes IMAGE and ends with exit status 0.

A bad block is an error of input and output (EIO) for the requests that need it. One line
on standard error has its number, its offset in IMAGE, and the stored and the computed
value. A write of the whole block makes it good; a write of a part of it is refused. With
--repair, a bad block is reported and signed anew, and its data is read as it is.

A block and its field are written together. After SIGKILL each block has its old content
or its new one, or is reported as bad. What a client has flushed, or written with FUA,
stays after a power loss. Trim and write-zeroes write blocks of zeros with their fields.
Metadata beside the field of an nvme type becomes zero in the blocks that are written.
IMAGE is locked against a second server and against commands that write or replace it.
IMAGE keeps its length. Data after its last whole block has no field and no check, and
nbd prints a warning.`,
		Example: `  softmkey nbd --sig t10dif disk.dif --socket /tmp/disk
  nbdcopy 'nbd+unix:///?socket=/tmp/disk' disk.img
  qemu-io -f raw -c 'read -v 0 512' 'nbd+unix:///?socket=/tmp/disk'
  softmkey nbd --sig t10dif --crypto encrypt --order before --unit 520 --dek disk.key disk.enc
  softmkey nbd --sig t10dif --present protected --read-only disk.img`,
		Args: operands("IMAGE"),
		RunE: f.run,
	}
	f.bind(c)
	return c
}

// nbdFlags are the flags of nbd.
type nbdFlags struct {
	format         sigFlag
	crypto         cryptoFlags
	present        choiceFlag
	listen         string
	socket         fileFlag
	readOnly       bool
	repair, asJSON bool
}

// nbdAddress is where nbd listens without --listen and --socket: the port that IANA gave NBD.
const nbdAddress = "127.0.0.1:10809"

func (f *nbdFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	f.format.bind(c, "sig", "signature that IMAGE has (with --present protected: that the clients see)")
	f.crypto.bind(c)
	f.present = choiceFlag{choices: []string{"clean", "protected"}, value: "clean"}
	f.present.bind(c, "present", "what the clients see: clean data of a protected IMAGE, or a clean IMAGE with fields")
	flags.StringVar(&f.listen, "listen", "", "TCP address to listen on, `ADDR:PORT` (default "+nbdAddress+")")
	flags.Var(&f.socket, "socket", "listen on a UNIX socket with that name instead")
	flags.BoolVarP(&f.readOnly, "read-only", "r", false, "refuse writes; several servers may then serve IMAGE")
	flags.BoolVar(&f.repair, "repair", false, "report bad blocks, sign them anew and continue")
	flags.BoolVar(&f.asJSON, "json", false, "print the URI and the outcome (on standard output) and bad blocks (on standard error) as JSON, one object per line")
	exclusive(c, "listen", "socket")
	exclusive(c, "read-only", "repair")
}

func (f *nbdFlags) run(c *cobra.Command, args []string) (err error) {
	job, closeKey, err := f.job(c)
	if err != nil {
		return err
	}
	defer closeKey()
	d, err := f.open(args[0], job, &reporter{command: c.Name(), input: args[0], json: f.asJSON, errors: c.ErrOrStderr()})
	if err != nil {
		return err
	}
	defer func() { err = first(err, d.close()) }()
	l, uri, err := f.bindSocket(c)
	if err != nil {
		return err
	}
	if f.asJSON {
		encodeJSON(c.OutOrStdout(), map[string]any{"command": "nbd", "uri": uri, "bytes": d.Size()})
	} else {
		fmt.Fprintln(c.OutOrStdout(), uri)
	}
	err = nbd.Serve(c.Context(), l, d, nbd.Options{
		ReadOnly: f.readOnly, Zeroes: f.present.value == "clean",
		Failed: func(peer net.Addr, err error) {
			fmt.Fprintf(c.ErrOrStderr(), "softmkey: warning: the connection of %s ended: %v\n", nbdPeer(peer), err)
		},
	})
	if f.asJSON {
		encodeJSON(c.OutOrStdout(), d.outcome())
	}
	var stopped signalError
	if errors.As(err, &stopped) {
		return nil // a signal is the normal end of a server
	}
	return err
}

// nbdPeer returns a client's name for messages. Clients of a UNIX socket have no address.
func nbdPeer(a net.Addr) string {
	if a == nil || a.String() == "" || a.String() == "@" {
		return "a client"
	}
	return a.String()
}

// job returns the configuration of the view: the clients see its memory domain, and IMAGE is its wire
// domain, or the other way round with --present protected. closeKey closes the data encryption key.
func (f *nbdFlags) job(c *cobra.Command) (job mkeyio.Job, closeKey func(), err error) {
	closeKey = func() {}
	signature := &mkey.Signature{Wire: f.format.domain(), CheckMask: sig.MaskAll}
	if !f.format.given || signature.Wire == nil {
		signature = nil
	}
	switch {
	case signature == nil && f.crypto.crypto.value == "":
		return job, closeKey, usage(c, errors.New("--sig or --crypto is missing: what does IMAGE have? ('softmkey detect IMAGE' finds signatures)"))
	case signature == nil && (f.repair || f.present.value == "protected"):
		return job, closeKey, usage(c, errors.New("--repair and --present protected need the signature: give --sig"))
	case f.present.value == "protected" && spareMetadata(f.format.format):
		return job, closeKey, usage(c, fmt.Errorf("--present protected with metadata of %d bytes: a clean IMAGE has no place for what clients write beside the field", f.format.format.FieldSize()))
	case f.repair && f.present.value == "protected":
		return job, closeKey, usage(c, errors.New("--repair with --present protected: a clean IMAGE has no fields to sign"))
	}
	crypto, key, err := f.crypto.attributes(c, signature)
	if err != nil {
		return job, closeKey, err
	}
	if key != nil {
		closeKey = func() { key.Close() }
	}
	job = mkeyio.Job{Direction: mkeyio.TX, Signature: signature, Crypto: crypto}
	if f.present.value == "protected" {
		job.Direction = mkeyio.RX
	}
	return job, closeKey, nil
}

// spareMetadata reports whether a format has metadata beside its field.
func spareMetadata(f sig.Format) bool {
	alone := f
	alone.Metadata = 0
	return f.FieldSize() > alone.FieldSize()
}

// bindSocket listens at the address of --listen or --socket, and returns the NBD URI for clients.
func (f *nbdFlags) bindSocket(c *cobra.Command) (net.Listener, string, error) {
	if f.socket == "" {
		at := f.listen
		if at == "" {
			at = nbdAddress
		}
		l, err := net.Listen("tcp", at)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			return nil, "", fmt.Errorf("%s is taken by another program: name another port with --listen, or a --socket", at)
		case err != nil:
			return nil, "", usage(c, fmt.Errorf("--listen %s: must be ADDR:PORT with an address of this host: %w", at, err))
		}
		return l, "nbd://" + l.Addr().String(), nil
	}
	name, err := filepath.Abs(string(f.socket))
	if err != nil {
		return nil, "", err
	}
	l, err := unixsocket.Listen("unix", name)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, "", fmt.Errorf("--socket %s: another server listens there", f.socket)
	case errors.Is(err, syscall.EEXIST):
		return nil, "", fmt.Errorf("--socket %s: exists, and is not the socket of a server that has ended: name another", f.socket)
	case err != nil:
		return nil, "", socketError(name, err)
	}
	return l, "nbd+unix:///?socket=" + url.QueryEscape(name), nil
}

// socketError returns the error for a UNIX socket, the value of --socket, that cannot be listened at.
func socketError(name string, err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("--socket %s: the name of a socket has at most 107 bytes, this one has %d", name, len(name))
	case errors.As(err, &op):
		err = op.Err // without the operation and a second name
	}
	return fmt.Errorf("--socket %s: %w", name, err)
}

// nbdDevice is the device that the clients see.
type nbdDevice struct {
	*mkeyio.View
	image  *os.File
	repair bool

	mu     sync.Mutex // guards the report
	report *reporter
	first  *mkey.BadBlock

	read, written, bad, repaired atomic.Uint64
}

// open opens IMAGE and locks it.
func (f *nbdFlags) open(name string, job mkeyio.Job, report *reporter) (*nbdDevice, error) {
	flags := os.O_RDWR
	if f.readOnly {
		flags = os.O_RDONLY
	}
	image, err := os.OpenFile(name, flags, 0)
	if err != nil {
		if !f.readOnly && errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("%w: --read-only serves it to readers", err)
		}
		return nil, err
	}
	size, ok := seekable(image)
	if !ok {
		image.Close()
		return nil, fmt.Errorf("%s: an image must be a file or a block device", name)
	}
	if err := lockImage(image, f.readOnly); err != nil {
		image.Close()
		return nil, err
	}
	d := &nbdDevice{image: image, repair: f.repair, report: report}
	job.Bad = d.found
	if d.View, err = mkeyio.NewView(job, image, size); err != nil {
		image.Close()
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	if format := jobInput(&mkeyio.Job{Direction: mkeyio.TX + mkeyio.RX - job.Direction, Signature: job.Signature, Crypto: job.Crypto}); !f.asJSON {
		suggestFormat(report.errors, image, name, format, io.ErrUnexpectedEOF)
	}
	if job.Signature != nil && !f.asJSON {
		block := f.format.format.Stride()
		if f.present.value == "protected" {
			block = f.format.format.Block()
		}
		warnTail(report.errors, name, size%int64(block))
	}
	return d, nil
}

// lockImage locks an image until it is closed. A shared lock, for servers that only read, excludes
// those that write; any other lock excludes all other servers and commands.
func lockImage(f *os.File, shared bool) error {
	lock := filelock.Exclusive
	if shared {
		lock = filelock.Shared
	}
	if err := lock(f); err != nil {
		return err
	}
	// A command may have replaced the file after it was opened.
	is, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(f.Name()); err != nil || !os.SameFile(is, now) {
		return fmt.Errorf("%s: another program has replaced or removed it just now", f.Name())
	}
	return nil
}

// close flushes and closes IMAGE.
func (d *nbdDevice) close() error {
	err := d.Flush()
	_ = d.View.Close() // always returns nil
	return first(err, d.image.Close())
}

// found reports a bad block.
func (d *nbdDevice) found(b *mkey.BadBlock) {
	d.bad.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.first == nil {
		d.first = b
	}
	d.report.bad(b)
}

// ReadAt implements nbd.Device.
func (d *nbdDevice) ReadAt(p []byte, off int64) (int, error) {
	n, err := d.View.ReadAt(p, off)
	if d.mends(err) {
		if err := d.Repair(off, int64(len(p))); err != nil {
			return 0, err
		}
		n, err = d.View.ReadAt(p, off)
	}
	d.read.Add(uint64(n))
	return n, err
}

// WriteAt implements nbd.Device.
func (d *nbdDevice) WriteAt(p []byte, off int64) (int, error) {
	n, err := d.View.WriteAt(p, off)
	if d.mends(err) {
		if err := d.Repair(off, int64(len(p))); err != nil {
			return 0, err
		}
		n, err = d.View.WriteAt(p, off)
	}
	d.written.Add(uint64(n))
	return n, err
}

// mends reports whether ReadAt or WriteAt should repair the blocks and try again after an error.
func (d *nbdDevice) mends(err error) bool {
	var bad *mkey.BadBlock
	if !d.repair || !errors.As(err, &bad) {
		return false
	}
	d.repaired.Add(1)
	return true
}

// zeroPiece holds the zeros that Zero writes at a time.
var zeroPiece = make([]byte, 1<<20)

// Zero implements nbd.Device.
func (d *nbdDevice) Zero(off, n int64) error {
	for n > 0 {
		// Pieces end on granule boundaries. A granule that is written in part must be read first,
		// so only the first and the last one of the range are read.
		k := min(n, int64(len(zeroPiece)))
		if end := (off + k) / d.Granule() * d.Granule(); k < n && end > off {
			k = end - off
		}
		if _, err := d.WriteAt(zeroPiece[:k], off); err != nil {
			return err
		}
		off, n = off+k, n-k
	}
	return nil
}

// Flush implements nbd.Device.
func (d *nbdDevice) Flush() error { return d.image.Sync() }

// outcome returns the final report as JSON.
func (d *nbdDevice) outcome() any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return struct {
		Command  string        `json:"command"`
		Read     uint64        `json:"bytes_read"`
		Written  uint64        `json:"bytes_written"`
		Errors   uint64        `json:"errors"`
		Repaired uint64        `json:"repairs"`
		First    *filecopy.Bad `json:"first_error"`
	}{"nbd", d.read.Load(), d.written.Load(), d.bad.Load(), d.repaired.Load(), filecopy.NewBad(d.first)}
}

var _ nbd.Device = (*nbdDevice)(nil)
