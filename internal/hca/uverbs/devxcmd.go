//go:build linux

package uverbs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/operr"
)

// The commands of DEVX and UARs, which are mlx5's own.

// answer writes the result of an adapter command. A command that ran and failed has its
// status in out, in addition to the error.
func (c *command) answer(id uint16, out []byte, err error) error {
	if len(out) > 0 {
		if err2 := c.output(id, out); err2 != nil {
			return err2
		}
	}
	return err
}

func (c *command) devxOther() error {
	in, err := c.input(driver)
	if err != nil {
		return err
	}
	out, err := c.file.ctx.ExecDEVX(in, c.room(driver+1))
	return c.answer(driver+1, out, err)
}

func (c *command) devxCreate() error {
	in, err := c.input(driver + 1)
	if err != nil {
		return err
	}
	o, out, err := c.file.ctx.CreateDEVX(in, c.room(driver+2))
	if err != nil {
		return c.answer(driver+2, out, err)
	}
	h, err := c.file.objects.add(devxObject{o})
	if err != nil {
		return err
	}
	c.give(driver, uint64(h))
	return c.output(driver+2, out)
}

// devxExec executes a command that queries or modifies an object, of DEVX or of the verbs.
func (c *command) devxExec() error {
	h, err := c.need(driver, "DEVX command")
	if err != nil {
		return err
	}
	in, err := c.input(driver + 1)
	if err != nil {
		return err
	}
	room := c.room(driver + 2)
	var out []byte
	switch o := c.file.objects.objects[uint32(h)].(type) {
	case devxObject:
		out, err = o.Exec(in, room)
	case *qpObject:
		out, err = c.file.ctx.ExecOn(o.QP, in, room)
	case *cqObject:
		out, err = c.file.ctx.ExecOn(o.CQ, in, room)
	case *srqObject:
		out, err = c.file.ctx.ExecOn(o.SRQ, in, room)
	case mrObject:
		out, err = c.file.ctx.ExecOn(o.MR, in, room)
	default:
		return operr.New("DEVX command", syscall.ENOENT, "handle %d: the program has no object under it that takes commands", h)
	}
	return c.answer(driver+2, out, err)
}

func (c *command) devxQueryUAR() error {
	in, err := c.input(driver)
	if err != nil {
		return err
	}
	if c.file.uars[in.u32(0)] == nil {
		return operr.New("DEVX query UAR", syscall.EINVAL, "UAR %d: the program has none of this number", in.u32(0))
	}
	return c.output32(driver+1, in.u32(0))
}

func (c *command) devxQueryEQN() error {
	in, err := c.input(driver)
	if err != nil {
		return err
	}
	if in.u32(0) >= compVectors {
		return operr.New("DEVX query EQN", syscall.EINVAL, "completion vector %d: the device has %d", in.u32(0), compVectors)
	}
	return c.output32(driver+1, in.u32(0))
}

// uarObject is a page of doorbell registers that is shared with the program. It
// has a file of its own, whose inode shows where the program has mapped it.
type uarObject struct {
	*adapter.UAR
	file *File
	id   uint32
	d    *os.File
	ino  uint64
	page []byte

	// guarded by file.uarMu
	qps, arms int    // queues that ring it
	addr      uint64 // in the program; 0: not known yet
}

func (u *uarObject) close() error {
	if err := u.UAR.Close(); err != nil {
		return err
	}
	delete(u.file.uars, u.id)
	u.free()
	return nil
}

func (u *uarObject) free() {
	unix.Munmap(u.page)
	u.d.Close()
	descriptors.give(u.file.pid, 1)
}

// newPage makes the file of a UAR whose page lies at offset, and maps it.
func (u *uarObject) newPage(offset int64) error {
	fd, err := unix.MemfdCreate("softmkey-uar", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Ftruncate(fd, offset+pageSize); err == nil {
		u.page, err = unix.Mmap(fd, offset, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	u.d, u.ino = os.NewFile(uintptr(fd), "uar"), st.Ino
	return nil
}

func (c *command) allocUAR() error {
	const op = "allocate UAR"
	const blueFlame, nonCached = 0, 1
	f := c.file
	typ, err := c.need(driver+1, op)
	if err != nil {
		return err
	}
	if typ != blueFlame && typ != nonCached {
		return operr.New(op, syscall.EINVAL, "UAR type %d: 0 (BlueFlame) and 1 (non-cached) are known", typ)
	}
	if len(f.uars) >= mostUARs {
		return operr.New(op, syscall.ENOMEM, "%d UARs are allocated: a program has at most that many", mostUARs)
	}
	for f.uars[f.nextUAR] != nil || f.nextUAR == 0 {
		f.nextUAR = (f.nextUAR + 1) % mostUARs
	}
	id := f.nextUAR
	offset := uint64(firstUAR+id) * pageSize
	o := &uarObject{file: f, id: id}
	if err := descriptors.take(op, f.pid, 1); err != nil {
		return err
	}
	if err := o.newPage(int64(offset)); err != nil {
		descriptors.give(f.pid, 1)
		return operr.New(op, errnoOf(err), "the page: %v", err)
	}
	if o.UAR, err = f.ctx.NewUAR(o.page, typ == blueFlame); err != nil {
		o.free()
		return err
	}
	h, err := f.objects.add(o)
	if err != nil {
		return err
	}
	f.uars[id] = o
	c.give(driver, uint64(h))
	return outputs(c.output64(driver+2, offset), c.output32(driver+3, pageSize), c.output32(driver+4, id))
}
