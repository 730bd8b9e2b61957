//go:build linux

package uverbs

import (
	"cmp"
	"os"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// Caller is the thread that waits for an ioctl.
type Caller interface {
	Process() int
	// Memory opens the memory of the thread's process.
	Memory() (*procmem.Process, error)
	Read(addr uint64, dst []byte) error
	Write(addr uint64, src []byte) error
	// Inject gives the caller an open description of f for reading, which exec closes, and returns
	// its number; gone is called when the last copy is closed.
	Inject(f *os.File, gone func()) (int, error)
	// Injected returns the file of a number that Inject returned, or nil.
	Injected(fd int) *os.File
	// Give gives the caller a copy of f, which is none of the device's files, and returns its number.
	Give(f *os.File) (int, error)
	// MayTakeLong tells the caller's supervisor that the ioctl may take long from here on: it serves
	// other callers meanwhile.
	MayTakeLong()
	// Copy returns a copy of a descriptor of the caller, which has an open description in common with it.
	Copy(fd int) (*os.File, error)
	// FileID identifies the file of a descriptor of the caller.
	FileID(fd int) (dev, ino uint64, ok bool)
}

// command is one ioctl while it is executed.
type command struct {
	file *File
	Caller
	request
}

// find returns the attribute with that id, or nil.
func (c *command) find(id uint16) *attr {
	for i := range c.attrs {
		if c.attrs[i].id == id {
			return &c.attrs[i]
		}
	}
	return nil
}

func (c *command) has(id uint16) bool { return c.find(id) != nil }

// input returns the bytes of an input attribute. Data of up to 8 bytes are in the attribute
// itself. A missing attribute has no bytes.
func (c *command) input(id uint16) (fields, error) {
	a := c.find(id)
	if a == nil {
		return nil, nil
	}
	if a.len <= 8 {
		b := make(fields, 8)
		le.PutUint64(b, a.data)
		return b[:a.len], nil
	}
	b := make(fields, a.len)
	return b, c.Read(a.data, b)
}

// inputs returns the bytes of several input attributes.
func (c *command) inputs(ids ...uint16) ([]fields, error) {
	all := make([]fields, len(ids))
	for i, id := range ids {
		var err error
		if all[i], err = c.input(id); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// value returns a number that an attribute holds in itself, a handle or a
// constant; need refuses the ioctl if the attribute is missing.
func (c *command) value(id uint16) (uint64, bool) {
	a := c.find(id)
	if a == nil {
		return 0, false
	}
	return a.data, true
}

func (c *command) need(id uint16, name string) (uint64, error) {
	v, ok := c.value(id)
	if !ok {
		return 0, failure.New(name, syscall.EINVAL, "attribute %#x is missing", id)
	}
	return v, nil
}

// needs returns the numbers of several attributes.
func (c *command) needs(name string, ids ...uint16) ([]uint64, error) {
	all := make([]uint64, len(ids))
	for i, id := range ids {
		var err error
		if all[i], err = c.need(id, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// output writes b to the output attribute with that id, as far as it has room. It does
// nothing if the program has not passed the attribute.
func (c *command) output(id uint16, b []byte) error {
	a := c.find(id)
	if a == nil {
		return nil
	}
	n := min(int(a.len), len(b))
	if n > 0 {
		if err := c.Write(a.data, b[:n]); err != nil {
			return err
		}
	}
	a.flags |= attrValidOutput
	return nil
}

func (c *command) output32(id uint16, v uint32) error {
	return c.output(id, le.AppendUint32(nil, v))
}

func (c *command) output64(id uint16, v uint64) error {
	return c.output(id, le.AppendUint64(nil, v))
}

// room returns the length of an output attribute.
func (c *command) room(id uint16) int {
	if a := c.find(id); a != nil {
		return int(a.len)
	}
	return 0
}

// give stores a new object's handle or descriptor in its attribute.
func (c *command) give(id uint16, v uint64) {
	if a := c.find(id); a != nil {
		a.data = v
	}
}

// outputs writes several outputs and returns the first error.
func outputs(errs ...error) error { return cmp.Or(errs...) }
