package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/internal/tool/filelock"
	"github.com/softmkey/softmkey/internal/tool/nbd"
	"github.com/softmkey/softmkey/internal/tool/nbd/image"
	"github.com/softmkey/softmkey/internal/tool/outfile"
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
do; at least one of --sig, --crypto and --luks is needed. An encrypted IMAGE is --crypto
encrypt, which is what writes do; clients never see ciphertext. Without --sig, IMAGE may
be a volume of dm-crypt, LUKS1 or LUKS2: --luks takes all but the volume key from its
header.
With --metadata, IMAGE has the blocks alone and FILE has their fields, in the order of
the blocks: FILE must have exactly one for each block. With --present protected it is the
other way round: IMAGE is clean, or encrypted with --crypto decrypt, and the clients see
it with the fields of --sig. Blocks that they write must then have good fields.

The first line on standard output is the URI of the device. If the program that starts nbd
passes it listening sockets (LISTEN_FDS, as systemd and nbdcopy do), nbd uses them and
prints no URI. After a signal, nbd finishes the requests that are being executed, flushes
IMAGE and ends with exit status 0. Up to 128 clients are served at a time.

A bad block is an error of input and output (EIO) for the requests that need it. One line
on standard error has its number, its offset in IMAGE, and the stored and the computed
value; the block is not reported again until it is written. A write of the whole block
makes it good; a write of a part of it is refused. With --repair, a bad block is reported
and signed anew, and its data is read as it is. Only fields are written. Because a wrong
signature or key makes good blocks look bad, --repair is refused unless three quarters of a
sample of IMAGE are good, and a bad block is repaired only if the blocks around it are good
and at most 7 others in a row with it are bad. --repair=force repairs every bad block.

A block and its field are written together, with --metadata the blocks of a write before
their fields. After SIGKILL each block has its old content or its new one, or is reported
as bad. What a client has flushed, or written with FUA,
stays after a power loss. If a flush fails, data of any client may be lost: every later
flush of every client fails too, and the exit status is 2. Write-zeroes writes blocks of
zeros with their fields. Trim makes holes in an image that has encryption alone, and does
nothing to an image with fields. Metadata beside the field of an nvme type becomes zero in
the blocks that are written. IMAGE is locked against a second server and against commands
that write or replace it. IMAGE keeps its length. Data after its last whole block has no
field and no check, and nbd prints a warning.`,
		Example: `  softmkey nbd --sig t10dif disk.dif --socket /tmp/disk
  nbdcopy 'nbd+unix:///?socket=/tmp/disk' disk.img
  qemu-io -f raw -c 'read -v 0 512' 'nbd+unix:///?socket=/tmp/disk'
  softmkey nbd --sig t10dif --crypto encrypt --order before --unit 520 --dek disk.key disk.enc
  softmkey nbd --sig t10dif --present protected --read-only disk.img
  softmkey nbd --sig nvme16:4096,meta=64 --metadata ns1.meta ns1.img
  softmkey nbd --luks --dek volume.key volume.img
  nbdcopy -- [ softmkey nbd --sig t10dif disk.dif ] disk.img`,
		Args: operands("IMAGE"),
		RunE: f.run,
	}
	f.bind(c)
	return c
}

// nbdFlags are the flags of nbd.
type nbdFlags struct {
	separateFlags
	serverFlags
	format  sigFlag
	crypto  cryptoFlags
	volume  volumeFlags
	present choiceFlag
	repair  choiceFlag
	listen  string
	socket  fileFlag
}

// nbdAddress is where nbd listens without --listen and --socket: the port that IANA gave NBD.
const nbdAddress = "127.0.0.1:10809"

// serverFlags are the flags of nbd and target, which serve images.
type serverFlags struct {
	readOnly bool
	mounted  bool
	asJSON   bool
}

// bind adds the flags to a command. output describes what --json prints.
func (f *serverFlags) bind(c *cobra.Command, output string) {
	flags := c.Flags()
	flags.BoolVarP(&f.readOnly, "read-only", "r", false, "refuse writes; several servers may then serve IMAGE")
	flags.BoolVar(&f.mounted, "overwrite-mounted", false, "serve a block device for writing even if it is mounted or a part of another device")
	flags.BoolVar(&f.asJSON, "json", false, output)
}

func (f *nbdFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	f.format.bind(c, "sig", "signature that IMAGE has (with --present protected: that the clients see)")
	f.crypto.bindUnits(c, sizeWords(mkeyio.EncryptionUnits()))
	f.volume.bind(c, "IMAGE")
	f.present = choiceFlag{choices: []string{"clean", "protected"}, value: "clean"}
	f.present.bind(c, "present", "what the clients see: clean data of a protected IMAGE, or a clean IMAGE with fields")
	f.bindSeparate(c, &f.inFields, "metadata", "IMAGE has the blocks alone, and their fields are in this file")
	flags.StringVar(&f.listen, "listen", "", "TCP address to listen on, `ADDR:PORT` (default "+nbdAddress+")")
	flags.Var(&f.socket, "socket", "listen on a UNIX socket with that name instead")
	f.serverFlags.bind(c, "print the URI and the outcome (on standard output) and bad blocks (on standard error) as JSON, one object per line")
	f.repair.choices = []string{"fitting", "force"}
	f.repair.bind(c, "repair", "report bad blocks, sign them anew and continue; force does so even if the rest of IMAGE does not fit")
	flags.Lookup("repair").NoOptDefVal = "fitting"
	exclusive(c, "listen", "socket")
	exclusive(c, "read-only", "repair")
}

func (f *nbdFlags) run(c *cobra.Command, args []string) (err error) {
	end := queueLines(c, f.asJSON)
	defer func() { err = end(err) }()
	passed, err := passedSockets()
	switch {
	case err != nil:
		return err
	case len(passed) > 0 && (f.listen != "" || f.socket != ""):
		return usage(c, errors.New("--listen and --socket cannot be used here: the program that started nbd has passed it a socket (LISTEN_FDS)"))
	}
	if f.volume.ofLUKS() {
		if f.crypto.crypto.value == "" {
			f.crypto.crypto.value = "encrypt"
		}
		if f.crypto.crypto.value != "encrypt" || f.format.given {
			return usage(c, errors.New("--luks: IMAGE is an encrypted volume: without --sig and --crypto decrypt"))
		}
		if err := f.volume.fromHeader(&f.crypto, args[0]); err != nil {
			return err
		}
	}
	if err := f.checkNames(c, args...); err != nil {
		return err
	}
	job, key, err := f.job(c)
	if err != nil {
		return err
	}
	defer key.Close()
	encryption, err := f.volume.encryption(c, job.Signature, job.Crypto)
	switch {
	case err != nil:
		return usage(c, err)
	case encryption != nil:
		job.Crypto = nil
	}
	d, err := f.open(args[0], job, encryption, &reporter{command: c.Name(), input: args[0], json: f.asJSON, errors: c.ErrOrStderr()})
	if err != nil {
		return err
	}
	uri, listeners := "", passed
	if len(passed) == 0 {
		l, own, err := f.bindSocket(c)
		if err != nil {
			return cmp.Or(err, d.close())
		}
		uri, listeners = own, []net.Listener{l}
	}
	switch {
	case f.asJSON:
		encodeJSON(c.OutOrStdout(), map[string]any{"command": "nbd", "uri": uri, "bytes": d.Size()})
	case uri != "":
		fmt.Fprintln(c.OutOrStdout(), uri)
	}
	err = nbd.Serve(c.Context(), d, nbd.Options{
		ReadOnly: f.readOnly, Zeroes: f.present.value == "clean",
		Failed: func(peer net.Addr, err error) {
			connectionEnded(c.ErrOrStderr(), f.asJSON, nbdPeer(peer), err)
		},
	}, listeners...)
	var stopped signalError
	if errors.As(err, &stopped) {
		err = nil // a signal is the normal end of a server
	}
	err = cmp.Or(err, d.close())
	d.summary(c.OutOrStdout(), err == nil)
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
// domain, or the other way round with --present protected. key is the data encryption key; nil: none.
func (f *nbdFlags) job(c *cobra.Command) (job mkeyio.StreamJob, key *dek.DEK, err error) {
	signature := &mkey.Signature{Wire: f.format.domain()}
	if !f.format.given || signature.Wire == nil {
		signature = nil
	}
	rightWay, wrongWay := "encrypt", "decrypt" // from the clients to IMAGE
	if f.present.value == "protected" {
		rightWay, wrongWay = wrongWay, rightWay
	}
	switch {
	case signature == nil && f.crypto.crypto.value == "":
		return job, nil, usage(c, errors.New("--sig, --crypto or --luks is missing: what does IMAGE have? ('softmkey detect IMAGE' finds signatures)"))
	case f.crypto.crypto.value == wrongWay:
		return job, nil, usage(c, fmt.Errorf("--crypto %s: clients would see IMAGE encrypted once more; an encrypted IMAGE is --crypto %s here, and clients see it decrypted", wrongWay, rightWay))
	case signature == nil && (f.repair.value != "" || f.present.value == "protected"):
		return job, nil, usage(c, errors.New("--repair and --present protected need the signature: give --sig"))
	case f.present.value == "protected" && spareMetadata(f.format.format):
		return job, nil, usage(c, fmt.Errorf("--present protected with metadata of %d bytes: a clean IMAGE has no place for what clients write beside the field", f.format.format.FieldSize()))
	case f.inFields != "" && (signature == nil || f.present.value == "protected"):
		return job, nil, usage(c, errors.New("--metadata has the fields of IMAGE: --sig says what they are, and --present protected is for an IMAGE without fields"))
	case f.repair.value != "" && f.present.value == "protected":
		return job, nil, usage(c, errors.New("--repair with --present protected: a clean IMAGE has no fields to sign"))
	}
	crypto, key, err := f.crypto.attributes(c, signature)
	if err != nil {
		return job, nil, err
	}
	if f.inFields != "" && crypto != nil && !crypto.OnMemory(signature) {
		key.Close()
		return job, nil, usage(c, errors.New("--metadata with --crypto: the fields are encrypted together with the blocks, and cannot be in another file; --order after signs the ciphertext"))
	}
	job = mkeyio.StreamJob{Direction: mkeyio.TX, Signature: signature, Crypto: crypto}
	if f.present.value == "protected" {
		job.Direction = mkeyio.RX
	}
	return job, key, nil
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
		at := cmp.Or(f.listen, nbdAddress)
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
		return nil, "", socketError("--socket", name, err)
	}
	// In a URI, unlike in a form, a plus sign is not a space.
	return l, "nbd+unix:///?socket=" + strings.ReplaceAll(url.QueryEscape(name), "+", "%20"), nil
}

// socketError returns the error for a UNIX socket, the value of a flag, that cannot be listened at.
func socketError(flag, name string, err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err // without the operation and a second name
	}
	return fmt.Errorf("%s %s: %w", flag, name, reason(err))
}

// nbdDevice is the device that the clients see.
type nbdDevice struct {
	*image.Image
	files []*os.File

	mu     sync.Mutex // guards the report
	report *reporter
}

// open opens IMAGE and locks it.
func (f *nbdFlags) open(name string, job mkeyio.StreamJob, encryption *mkeyio.Encryption, report *reporter) (_ *nbdDevice, err error) {
	d := &nbdDevice{report: report}
	defer func() {
		if err != nil {
			d.closeFiles()
		}
	}()
	file, size, err := openImage(name, f.readOnly, f.mounted)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, file)
	offset := f.volume.offset.or(0)
	if size, err = partLength(name, size, offset, f.volume.length.or(-1)); err != nil {
		return nil, err
	}
	var store image.Store = image.File{File: file, Offset: offset}
	if f.inFields != "" {
		fields, bytes, err := openImage(string(f.inFields), f.readOnly, f.mounted)
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, fields)
		stream, err := joined(f.format.format, file, mkeyio.FromAt(file, size), fields, mkeyio.FromAt(fields, bytes))
		if err != nil {
			return nil, err
		}
		size, _ = stream.Size()
		store = image.Separate(f.format.format, image.File{File: file, Offset: offset}, image.File{File: fields})
		report.block = uint64(f.format.format.Block())
	}
	d.Image, err = image.New(store, image.Options{
		Job: job, Encryption: encryption, Size: size, ReadOnly: f.readOnly, Bad: d.bad, Kept: d.kept, Failed: d.failed,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	if _, format := fileFormats(&job); !f.asJSON && offset == 0 && f.inFields == "" {
		suggestFormat(report.errors, file, name, format, io.ErrUnexpectedEOF)
	}
	if f.repair.value != "" {
		var misfit *image.MisfitError
		switch err := d.AllowRepair(f.repair.value == "force"); {
		case errors.As(err, &misfit):
			return nil, fmt.Errorf("%s: %w: --repair could overwrite data; --repair=force takes that risk", name, err)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, reason(err))
		}
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

// openImage opens and locks an image that is to be served, and returns its size. mounted allows writes to a block device
// that the system uses.
func openImage(name string, readOnly, mounted bool) (file *os.File, size int64, err error) {
	if readOnly {
		file, err = os.OpenFile(name, os.O_RDONLY|atOnce, 0)
	} else {
		file, err = outfile.OpenUnused(ending, name, os.O_RDWR|atOnce, mounted)
	}
	if !readOnly && errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: --read-only serves it to readers", err)
	}
	if err != nil {
		return nil, 0, err
	}
	size, ok := seekable(file)
	if !ok {
		err = fmt.Errorf("%s: an image must be a file or a block device", name)
	}
	if err == nil {
		err = outfile.RefuseStdout(file) // what the server prints would be written into the image
	}
	if err == nil {
		err = lockImage(file, readOnly)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, size, nil
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
	if err := d.Image.Close(); err != nil {
		d.closeFiles()
		return printedError{err}
	}
	return d.closeFiles()
}

func (d *nbdDevice) closeFiles() (err error) {
	for _, f := range d.files {
		err = cmp.Or(err, f.Close())
	}
	return err
}

// bad reports a bad block.
func (d *nbdDevice) bad(b *mkey.BadBlock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.bad(b)
}

// kept reports the first bad block that is not repaired.
func (d *nbdDevice) kept(block uint64) {
	d.warn("block %d is not repaired, and neither are others like it: too many blocks around it are bad, as in a part that has another format; --repair=force repairs all", block)
}

// failed reports an error of IMAGE.
func (d *nbdDevice) failed(op string, offset int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	imageFailed(d.report.errors, d.report.json, d.report.input, op, offset, err)
}

// imageFailed reports an error of an image that a server serves.
func imageFailed(w io.Writer, asJSON bool, name, op string, offset int64, err error) {
	var path *os.PathError
	if errors.As(err, &path) && path.Path == name {
		err = path.Err // without the name, which is in the message
	}
	text := err.Error()
	if errors.Is(err, io.ErrUnexpectedEOF) {
		text = "the image has been truncated"
	}
	switch {
	case asJSON:
		encodeJSON(w, map[string]any{"file": name, "operation": op, "offset": offset, "error": text})
	case op == "flush":
		message(w, "%s: flush: %s: data that clients have written may be lost, and all further flushes fail", name, text)
	default:
		message(w, "%s: %s at offset %d of the device: %s", name, op, offset, text)
	}
}

// connectionEnded reports the error of a connection to a server.
func connectionEnded(w io.Writer, asJSON bool, peer string, err error) {
	if asJSON {
		encodeJSON(w, map[string]any{"peer": peer, "error": err.Error()})
		return
	}
	message(w, "warning: the connection of %s ended: %v", peer, err)
}

func (d *nbdDevice) warn(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	message(d.report.errors, "%s: %s", d.report.input, fmt.Sprintf(format, args...))
}

// summary reports the outcome: as JSON, or in words if there were errors. It is complete if all that clients have
// flushed is on the disk.
func (d *nbdDevice) summary(out io.Writer, complete bool) {
	n := d.Counts()
	if d.report.json {
		encodeOutcome(out, struct {
			Command  string        `json:"command"`
			Read     uint64        `json:"bytes_read"`
			Written  uint64        `json:"bytes_written"`
			Errors   uint64        `json:"errors"`
			Repaired uint64        `json:"repairs"`
			Refused  uint64        `json:"requests_refused"`
			Failures uint64        `json:"requests_failed"`
			First    *filecopy.Bad `json:"first_error"`
		}{"nbd", n.Read, n.Written, n.Bad, n.Repaired, n.Refused, n.Failures, filecopy.NewBad(d.report.at(n.First))}, complete)
		return
	}
	if n.Bad > 0 {
		d.warn("bad blocks: %d; signed anew: %d; requests that failed because of them: %d", n.Bad, n.Repaired, n.Refused)
	}
	if n.Failures > 0 {
		d.warn("requests that failed because of errors of the image: %d", n.Failures)
	}
}

var _ nbd.Device = (*nbdDevice)(nil)
