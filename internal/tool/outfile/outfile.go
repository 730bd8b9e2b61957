package outfile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/tool/filelock"
	"github.com/softmkey/softmkey/internal/tool/stdfile"
)

// Options tune an output. The zero value is a file with the mode 0666, less the
// umask, that is flushed to the disk.
type Options struct {
	// Mode is the mode of a file that did not exist, before the umask; 0 means
	// 0666. A file that is replaced keeps its mode, its ACL and extended attributes
	// and, if the user may do so, its owner. If its group or its ACL cannot be kept,
	// the group has no rights.
	Mode os.FileMode

	// Input, if not nil, is the file that the output is made from. Create refuses
	// an output that is the same file or block device.
	Input *os.File

	// Context, if not nil, ends the wait for a program that reads from a named pipe,
	// and for one that does not take what is written to it.
	Context context.Context

	// Mounted allows an output that is a block device which the system uses, for
	// example a mounted one.
	Mounted bool

	// KeepExisting makes it an error, which is os.ErrExist, if there is a file of
	// that name, at Create or at Commit.
	KeepExisting bool

	// RiskPowerLoss leaves out the flushes to the disk. A power loss within the
	// next half minute may then leave an empty or incomplete file, and the one it
	// replaced is gone.
	RiskPowerLoss bool
}

// File is an output.
type File struct {
	*os.File
	old       *os.File // the file that will be replaced, which is locked; nil if there is none
	target    string   // where the file goes; empty if it is written in place
	temporary string   // its name until then; empty if it has none
	exists    bool     // target existed when the output was created
	keep      bool     // Options.KeepExisting
	risk      bool
	ctx       context.Context // Options.Context
	blocked   error           // of a Write that the context has ended
	prepared  bool            // Prepare has succeeded
	full      atomic.Bool     // InPlace: the content that the file had is still there; a Write may run beside Abandon
	over      bool            // committed or abandoned
}

// Stdout returns standard output as an output. Neither Commit nor Abandon closes
// it. A standard output that is the same regular file as input is refused in every
// mode, since the command would read its own output, or overwrite input that it
// has yet to read.
func Stdout(input *os.File) (*File, error) {
	if err := RefuseStdout(input); err != nil {
		return nil, err
	}
	return lockedStdout()
}

// RefuseStdout returns an error if input is the regular file or the block device that
// standard output writes to.
func RefuseStdout(input *os.File) error {
	return refuseSame(input, os.Stdout, "standard output")
}

// Create opens the output of that name. Symbolic links are followed, except for one
// that leads to no file.
func Create(name string, o Options) (*File, error) {
	o.Mode = cmp.Or(o.Mode, 0o666)
	if err := stdfile.CheckName(name); err != nil {
		return nil, err
	}
	to, err := os.Stat(name)
	switch {
	case name == "":
		return nil, errors.New("the output's name is empty")
	case o.KeepExisting:
		if _, err := os.Lstat(name); err == nil {
			return nil, &os.PathError{Op: "create", Path: name, Err: syscall.EEXIST}
		}
		return create(name, o)
	case errors.Is(err, os.ErrNotExist):
		if target, err := os.Readlink(name); err == nil {
			return nil, fmt.Errorf("%s is a symbolic link to %s, which does not exist", name, target)
		}
		return create(name, o)
	case err != nil:
		return nil, err
	case to.IsDir():
		return nil, fmt.Errorf("%s is a directory: name the file to write", name)
	}
	// A file that the user may not write to is not replaced either. Opening it does
	// not change it.
	f, err := OpenUnused(cmp.Or(o.Context, context.Background()), name, os.O_WRONLY, o.Mounted)
	if err != nil {
		return nil, err
	}
	out, err := replace(f, name, to, o)
	if err != nil {
		f.Close()
		return nil, err
	}
	return out, nil
}

// OpenUnused opens a file that exists, to write to it. A block device that the system uses, as a mounted one, is an error
// unless mounted is set.
func OpenUnused(ctx context.Context, name string, flag int, mounted bool) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && isBlockDevice(info) && !mounted {
		flag |= exclusive
	}
	f, err := Open(ctx, name, flag, 0)
	if flag&exclusive != 0 && errors.Is(err, syscall.EBUSY) {
		return nil, fmt.Errorf("%s is mounted, or a part of another device: to write to it nevertheless, give --overwrite-mounted", name)
	}
	return f, err
}

// replace returns the output of a name that exists. f is open for writing.
func replace(f *os.File, name string, to os.FileInfo, o Options) (*File, error) {
	if err := refuseSame(o.Input, f, name); err != nil {
		return nil, err
	}
	if std, err := os.Stdout.Stat(); err == nil && isStdout(std, to) {
		f.Close()
		return lockedStdout() // /dev/stdout, which may be in append mode
	}
	if err := lock(f, name); err != nil {
		return nil, err
	}
	if !to.Mode().IsRegular() {
		return &File{File: f, risk: o.RiskPowerLoss, ctx: o.Context}, nil
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	if why := fixed(real, to); why != "" {
		return nil, fmt.Errorf("%s cannot be replaced: %s", name, why)
	}
	out, err := create(real, o)
	if err != nil {
		return nil, err
	}
	out.old, out.exists = f, true
	if err := keepRights(out.File, f, to); err != nil {
		out.Abandon()
		return nil, err
	}
	return out, nil
}

// isStdout reports whether an output is the file, the pipe or the device that standard output is. What else the command
// prints there would then stand within the data. The null device is no such output.
func isStdout(std, to os.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	if err == nil && os.SameFile(null, to) {
		return false
	}
	return os.SameFile(std, to) || isBlockDevice(std) && isBlockDevice(to) && sameDevice(std, to)
}

// lock locks a file that will be written or replaced against other commands, among them the
// server of an image. It returns an error if the name is that of another file by then.
func lock(f *os.File, name string) error {
	if err := filelock.Exclusive(f); err != nil {
		return err
	}
	is, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(name); err != nil || is.Mode().IsRegular() && !os.SameFile(is, now) {
		return fmt.Errorf("%s: another program has replaced or removed it just now", name)
	}
	return nil
}

// lockedStdout returns standard output, which no other command writes to.
func lockedStdout() (*File, error) {
	if err := stdfile.Check(os.Stdout); err != nil {
		return nil, err
	}
	if err := filelock.Inherited(os.Stdout, false); err != nil {
		return nil, err
	}
	return &File{File: os.Stdout}, nil
}

// unnamedFiles is false in tests of file systems without them.
var unnamedFiles = true

// create opens a new file that will replace the one of that name.
func create(name string, o Options) (*File, error) {
	out := &File{target: name, keep: o.KeepExisting, risk: o.RiskPowerLoss}
	var err error
	if unnamedFiles {
		if out.File, err = openUnnamed(name, o.Mode); err == nil {
			return out, nil
		}
	}
	open := func(temporary string) (err error) {
		out.File, err = os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, o.Mode)
		return err
	}
	if o.KeepExisting {
		// rename would replace a file that appears meanwhile.
		out.temporary, err = name, open(name)
	} else {
		err = out.try(open)
	}
	if err != nil {
		err, dir := cause(err), filepath.Dir(name)
		if _, missing := os.Stat(dir); errors.Is(missing, os.ErrNotExist) {
			err = fmt.Errorf("the directory %s: %w", dir, err)
		}
		return nil, &os.PathError{Op: "create", Path: name, Err: err}
	}
	return out, nil
}

// try calls f with temporary names beside the target until one of them is free,
// and keeps that one.
func (o *File) try(f func(temporary string) error) error {
	dir, base := filepath.Split(o.target)
	base = base[:min(len(base), 200)] // many file systems limit a name to 255 bytes
	for {
		var random [6]byte
		rand.Read(random[:])
		temporary := filepath.Join(dir, "."+base+".softmkey-"+hex.EncodeToString(random[:]))
		err := f(temporary)
		if err == nil {
			o.temporary = temporary
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
	}
}

// IsStdout reports whether the output is standard output: that of the name "-", or
// a file of another name, such as /dev/stdout, that standard output writes to.
func (o *File) IsStdout() bool { return o.File == os.Stdout }

// Target returns the name of the file that the output becomes, and whether there is something that it replaces.
func (o *File) Target() (name string, replaces bool) {
	if o.target == "" {
		return o.Name(), !o.IsStdout()
	}
	return o.target, o.exists
}

// Restrict makes a new file one that only its owner can read, before anything
// secret is written. A file that is replaced keeps the mode that its owner gave it.
func (o *File) Restrict() error {
	if o.target == "" || o.exists {
		return nil
	}
	return o.Explain(o.Chmod(0o600))
}

// Commit puts the file under its name and closes it. After an error the file that
// had the name before is still there, unless the error is one of flushing the
// directory.
func (o *File) Commit() error {
	if o.over || o.IsStdout() {
		return nil
	}
	o.over = true
	var err error
	if !o.prepared {
		err = o.ready(o.link)
	}
	if o.target == "" {
		return cmp.Or(err, o.Close())
	}
	defer o.release()
	// Some systems do not rename a file that is open.
	if runtime.GOOS == "windows" {
		o.release()
	}
	err = cmp.Or(o.Explain(err), o.Close())
	if o.temporary != "" {
		if err == nil && o.temporary != o.target {
			err = o.rename()
		}
		if err != nil {
			os.Remove(o.temporary)
		}
	}
	if err == nil && !o.risk {
		err = syncDirectory(filepath.Dir(o.target))
	}
	return o.failed(err)
}

// Prepare does all of Commit but to give the file its name. A command with several outputs prepares all of them
// first, so that the failure of one does not leave it with a new file beside an old one.
func (o *File) Prepare() error {
	if o.over || o.prepared || o.IsStdout() {
		return nil
	}
	err := o.ready(o.linkTemporary)
	o.prepared = err == nil
	return o.failed(o.Explain(err))
}

// ready writes the file to the disk, locks what it will replace, and gives it a name by link if it has none.
func (o *File) ready(link func() error) error {
	err := o.flush()
	if o.target == "" || err != nil {
		return err
	}
	if err = o.claim(); err == nil && o.temporary == "" {
		err = link()
	}
	return err
}

// failed returns an error of Commit with the name of the file.
func (o *File) failed(err error) error {
	held := new(filelock.HeldError)
	if err == nil || o.target == "" || errors.As(err, &held) {
		return err
	}
	return &os.PathError{Op: "write", Path: o.target, Err: cause(err)}
}

// errAppeared is the error of an output whose name another program has given to a file meanwhile.
var errAppeared = errors.New("another program has made this file meanwhile")

// claim locks the file that has the target's name if it is not the one that had it when the
// output was created. It is an error if no file had it then.
func (o *File) claim() error {
	if o.keep {
		return nil
	}
	now, err := os.Stat(o.target)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && o.old != nil {
		var was os.FileInfo
		if was, err = o.old.Stat(); err == nil && os.SameFile(was, now) {
			return nil
		}
	}
	if err == nil && !o.exists {
		return errAppeared
	}
	if err != nil || !now.Mode().IsRegular() {
		return err
	}
	f, err := os.OpenFile(o.target, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	o.release()
	o.old = f
	return lock(f, o.target)
}

// release unlocks the file that was to be replaced.
func (o *File) release() {
	if o.old != nil {
		o.old.Close()
		o.old = nil
	}
}

// link gives an unnamed file its target's name, or a temporary one if it replaces a file, which linkat does not.
func (o *File) link() error {
	if o.exists {
		return o.linkTemporary()
	}
	return o.appeared(linkUnnamed(o.File, o.target))
}

// rename gives a file that has a temporary name its target's. If that was free when the output was created, a file that
// has it now stays, which os.Rename would replace.
func (o *File) rename() error {
	if o.exists {
		return os.Rename(o.temporary, o.target)
	}
	err := os.Link(o.temporary, o.target)
	if err == nil {
		return os.Remove(o.temporary)
	}
	if errors.Is(err, os.ErrExist) {
		return o.appeared(err)
	}
	// The file system may have no links.
	if _, err := os.Lstat(o.target); err == nil {
		return o.appeared(os.ErrExist)
	}
	return os.Rename(o.temporary, o.target)
}

// appeared returns the error that a program understands if err says that there is a file of the target's name.
func (o *File) appeared(err error) error {
	if errors.Is(err, os.ErrExist) && !o.keep {
		return errAppeared
	}
	return err
}

// linkTemporary gives an unnamed file a temporary name.
func (o *File) linkTemporary() error {
	return o.try(func(temporary string) error { return linkUnnamed(o.File, temporary) })
}

// flush writes the data to the disk.
func (o *File) flush() error {
	if o.risk {
		return nil
	}
	err := o.Sync()
	if o.target == "" && (errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported)) {
		return nil // a pipe or a character device has nothing to flush
	}
	return err
}

// Abandon closes and removes the file. After Commit it does nothing.
func (o *File) Abandon() {
	if o.over || o.IsStdout() {
		return
	}
	o.over = true
	o.full.Store(false)
	o.Close()
	o.release()
	if o.temporary != "" {
		os.Remove(o.temporary)
	}
}

// Explain returns an error of an operation on the file with the name that the user
// gave instead of the temporary one.
func (o *File) Explain(err error) error {
	var e *os.PathError
	if o.temporary != "" && errors.As(err, &e) && e.Path == o.temporary {
		e.Path = o.target
	}
	return err
}

// cause returns an error without the operation and the names that the os package
// puts before it.
func cause(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// refuseSame returns an error if in and out are one regular file or one block
// device.
func refuseSame(in, out *os.File, name string) error {
	if in == nil {
		return nil
	}
	from, err := in.Stat()
	if err != nil {
		return err
	}
	to, err := out.Stat()
	if err != nil {
		return err
	}
	if sameStorage(from, to) {
		return fmt.Errorf("%s and %s are the same file", inputName(in), name)
	}
	return nil
}

func sameStorage(a, b os.FileInfo) bool {
	switch {
	case a.Mode().IsRegular():
		return os.SameFile(a, b)
	case isBlockDevice(a) && isBlockDevice(b):
		return os.SameFile(a, b) || sameDevice(a, b)
	}
	return false
}

func isBlockDevice(i os.FileInfo) bool {
	return i.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
}

func inputName(in *os.File) string {
	if in == os.Stdin {
		return "standard input"
	}
	return in.Name()
}

// Collides reports whether writing both names would write one file: they are the
// same existing file or block device, or the same name in the same directory.
func Collides(a, b string) bool {
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	if aerr == nil && berr == nil {
		return sameStorage(ai, bi)
	}
	if filepath.Base(a) != filepath.Base(b) {
		return false
	}
	ai, aerr = os.Stat(filepath.Dir(a))
	bi, berr = os.Stat(filepath.Dir(b))
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}
