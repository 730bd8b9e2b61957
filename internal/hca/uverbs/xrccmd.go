//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// The commands of XRC domains.

// xrcdFile is the file that names an XRC domain.
type xrcdFile struct{ dev, ino uint64 }

// namedXRCD is an XRC domain that a file names. Programs that open the file share it.
type namedXRCD struct {
	*adapter.XRCD
	opens int // guarded by the device's lock
}

// xrcdObject is one open of an XRC domain. It cannot be closed while QPs and SRQs use it
// that were made with its handle.
type xrcdObject struct {
	*adapter.XRCD
	dev   *Device
	name  xrcdFile
	named bool
	users int // guarded by the File's lock
}

func (o *xrcdObject) close() error {
	if o.users > 0 {
		return failure.New("close XRCD", syscall.EBUSY, "%d QPs and SRQs use it", o.users)
	}
	return o.release()
}

// release gives up the open. The domain is closed with its last one.
func (o *xrcdObject) release() error {
	if !o.named {
		return o.XRCD.Close()
	}
	d := o.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.xrcds[o.name]
	if x.opens--; x.opens > 0 {
		return nil
	}
	delete(d.xrcds, o.name)
	return x.Close()
}

// xrcd returns the domain with a handle for an object that is going to use it.
func (c *command) xrcd(handle uint64) (*xrcdObject, error) {
	return get[*xrcdObject](&c.file.objects, handle)
}

// use counts an object that uses the domain, and leave uncounts it. Both accept nil.
func (o *xrcdObject) use() {
	if o != nil {
		o.users++
	}
}

func (o *xrcdObject) leave() {
	if o != nil {
		o.users--
	}
}

// openXRCD answers OPEN_XRCD: struct ib_uverbs_open_xrcd. The descriptor of a
// file, if there is one, names a domain that every open of the file gets.
func (c *command) openXRCD(in fields) error {
	const noFile = 0xffffffff
	const create, exclusive = 0o100, 0o200 // O_CREAT, O_EXCL
	o := &xrcdObject{dev: c.file.dev}
	var err error
	if fd := in.u32(8); fd == noFile {
		o.XRCD, err = c.file.ctx.OpenXRCD()
	} else {
		err = c.openNamed(o, int(int32(fd)), in.u32(12)&create != 0, in.u32(12)&exclusive != 0)
	}
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(o)
	if err != nil {
		return err
	}
	return outputs(c.output32(coreOut, h), c.output32(uhwOut, o.Number()))
}

// openNamed opens the domain that a file names.
func (c *command) openNamed(o *xrcdObject, fd int, create, exclusive bool) error {
	const op = "open XRCD"
	dev, ino, ok := c.FileID(fd)
	if !ok {
		return failure.New(op, syscall.EBADF, "descriptor %d is not open", fd)
	}
	d := c.file.dev
	o.name, o.named = xrcdFile{dev, ino}, true
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.xrcds[o.name]
	switch {
	case x == nil && !create:
		return failure.New(op, syscall.EAGAIN, "descriptor %d: its file names no domain, and O_CREAT is not given", fd)
	case x == nil:
		made, err := c.file.ctx.OpenXRCD()
		if err != nil {
			return err
		}
		x = &namedXRCD{XRCD: made}
		d.xrcds[o.name] = x
	case exclusive:
		return failure.New(op, syscall.EINVAL, "descriptor %d: its file names a domain already, and O_EXCL is given", fd)
	}
	x.opens++
	o.XRCD = x.XRCD
	return nil
}
