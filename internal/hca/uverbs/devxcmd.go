//go:build linux

package uverbs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
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

// contextUser is the user whose commands a context executes: a context has objects of its own,
// and its program uses them all.
const contextUser = 0

// unlisted is the refusal of a command that the kernel does not let programs execute by the
// method.
func unlisted(cmd prm.Command, method string) error {
	return failure.New(method, syscall.EINVAL, "%v is none of the commands that this method executes", cmd)
}

// forDEVX returns whether the kernel lets programs send a command with that effect by DEVX.
func forDEVX(effect prm.Effect) func(prm.Command) bool {
	return func(c prm.Command) bool { s := c.Spec(); return s.Does == effect && s.Has(prm.ByDEVX) }
}

func (c *command) devxOther() error {
	in, err := c.input(devxOtherIn)
	if err != nil {
		return err
	}
	if cmd, _ := prm.OpcodeOf(in); !forDEVX(prm.General)(cmd) {
		return unlisted(cmd, "DEVX command")
	}
	out, err := c.file.ctx.Exec(contextUser, in, c.room(devxOtherOut))
	return c.answer(devxOtherOut, out, err)
}

// devxObject is an object that a command made.
type devxObject struct {
	file *File
	prm.Destruction
	regions *[]*region // nil for an object without a queue
}

func (o *devxObject) close() error {
	in := make([]byte, prm.CommandHeaderSize)
	o.Put(in)
	f := o.file
	f.unsubscribe(f.raiser(o.Destruction))
	out, err := f.ctx.Exec(contextUser, in, len(in))
	if err != nil {
		if st, _ := prm.StatusOf(out); st == prm.CmdResourceBusy {
			return &operr.Error{Op: o.Command.String(), Errno: syscall.EBUSY, Reason: "the object is in use", Err: err}
		}
		return err
	}
	if o.regions != nil {
		f.maps.leave(*o.regions)
	}
	return nil
}

// raiser returns the object of the adapter that raises the events of a DEVX object, or
// nil.
func (f *File) raiser(d prm.Destruction) any {
	switch d.Command.Spec().Object {
	case prm.OfCQ:
		if q := f.ctx.CQ(d.Number); q != nil {
			return q
		}
	case prm.OfQP:
		if q := f.ctx.QP(d.Number); q != nil {
			return q
		}
	case prm.OfRMP:
		if s := f.ctx.SRQ(d.Number); s != nil {
			return s
		}
	}
	return nil
}

func (c *command) devxCreate() error {
	in, err := c.input(devxObjIn)
	if err != nil {
		return err
	}
	cmd, _ := prm.OpcodeOf(in)
	if !forDEVX(prm.Makes)(cmd) {
		return unlisted(cmd, "DEVX create")
	}
	if n := prm.Objects(in); n != 1 {
		return failure.New("DEVX create", syscall.EINVAL, "%v of %d objects: a handle stands for one", cmd, n)
	}
	if !cmd.Spec().Has(prm.Quick) {
		c.MayTakeLong()
	}
	f := c.file
	o := &devxObject{file: f}
	var out []byte
	used, err := f.maps.using(func() (err error) {
		out, err = f.ctx.Exec(contextUser, in, c.room(devxObjOut))
		return err
	})
	if err != nil {
		return c.answer(devxObjOut, out, err)
	}
	if len(used) > 0 {
		o.regions = &used
	}
	o.Destruction, _ = prm.DestructionOf(in, out, 0)
	h, err := f.objects.add(o)
	if err != nil {
		return err
	}
	c.give(devxObjHandle, uint64(h))
	return c.output(devxObjOut, out)
}

// devxDestroy destroys an object of DEVX.
func (c *command) devxDestroy() error {
	o, err := named[*devxObject](c, attrDriverHandle, "DEVX destroy")
	if err != nil {
		return err
	}
	if !o.Command.Spec().Has(prm.Quick) {
		c.MayTakeLong()
	}
	_, err = remove[*devxObject](c, attrDriverHandle, "DEVX destroy")
	return err
}

// devxExec returns the handler of a method that executes commands on an object, of DEVX or of
// the verbs.
func devxExec(listed func(prm.Command) bool) func(*command) error {
	return func(c *command) error {
		const op = "DEVX command"
		h, err := c.need(devxObjHandle, op)
		if err != nil {
			return err
		}
		in, err := c.input(devxObjIn)
		if err != nil {
			return err
		}
		cmd, _ := prm.OpcodeOf(in)
		if !listed(cmd) {
			return unlisted(cmd, op)
		}
		named, about := false, cmd.Spec().Object
		switch o := c.file.objects.objects[uint32(h)].(type) {
		case *devxObject:
			named = prm.ParseDestruction(o.Command, in) == o.Destruction
		case *qpObject:
			named = (about == prm.OfQP || about == prm.OfDCT) && prm.NumberOf(in) == o.Number()
		case *cqObject:
			named = about == prm.OfCQ && prm.NumberOf(in) == o.Number()
		default:
			return failure.New(op, syscall.ENOENT, "handle %d: the program has no object under it that takes commands", h)
		}
		if !named {
			return failure.New(op, syscall.EINVAL, "handle %d is not the object that %v names", h, cmd)
		}
		out, err := c.file.ctx.Exec(contextUser, in, c.room(devxObjOut))
		return c.answer(devxObjOut, out, err)
	}
}

// Access flags of a umem: local and remote writing, remote reading, relaxed ordering.
const umemAccess = 1<<0 | 1<<1 | 1<<2 | 1<<20

func (c *command) regUmem() error {
	const op = "register umem"
	v, err := c.inputs(regUmemAddr, regUmemLength, regUmemAccess)
	if err != nil {
		return err
	}
	switch addr, length, access := v[0].u64(0), v[1].u64(0), v[2].u64(0); {
	case access&^umemAccess != 0:
		return failure.New(op, syscall.EINVAL, "access flags %#x: %#x are not known", access, access&^umemAccess)
	case c.has(regUmemDMABuf):
		return failure.New(op, syscall.EOPNOTSUPP, "dma-buf umems are not offered")
	default:
		mem, err := c.memory()
		if err != nil {
			return err
		}
		u, err := c.file.ctx.RegUmem(mem, addr, length, uint32(access))
		if err != nil {
			return err
		}
		h, err := c.file.objects.add(umemObject{u})
		if err != nil {
			return err
		}
		c.give(regUmemHandle, uint64(h))
		return c.output32(regUmemNumber, u.Number())
	}
}

func (c *command) devxQueryUAR() error {
	in, err := c.input(devxQueryUARIndex)
	if err != nil {
		return err
	}
	if c.file.uars[in.u32(0)] == nil {
		return failure.New("DEVX query UAR", syscall.EINVAL, "UAR %d: the program has none of this number", in.u32(0))
	}
	return c.output32(devxQueryUARPage, in.u32(0))
}

func (c *command) devxQueryEQN() error {
	in, err := c.input(devxQueryEQNVector)
	if err != nil {
		return err
	}
	if in.u32(0) >= compVectors {
		return failure.New("DEVX query EQN", syscall.EINVAL, "completion vector %d: the device has %d", in.u32(0), compVectors)
	}
	return c.output32(devxQueryEQNNumber, firstEQ+in.u32(0))
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

	addr uint64 // in the program; 0: not known yet; guarded by file.uarMu
}

func (u *uarObject) close() error {
	if err := u.UAR.Close(); err != nil {
		return err
	}
	delete(u.file.uars, u.id)
	u.file.uarMu.Lock()
	delete(u.file.bells, u)
	u.file.uarMu.Unlock()
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
	typ, err := c.need(allocUARType, op)
	if err != nil {
		return err
	}
	if typ != blueFlame && typ != nonCached {
		return failure.New(op, syscall.EINVAL, "UAR type %d: 0 (BlueFlame) and 1 (non-cached) are known", typ)
	}
	id := number.Next(f.pageIDs, f.uars)
	if id == 0 {
		return failure.New(op, syscall.ENOMEM, "%d UARs are allocated: a program has at most that many", mostUARs-1)
	}
	offset := uint64(firstUAR+id) * pageSize
	o := &uarObject{file: f, id: id}
	if err := descriptors.take(op, f.pid, 1); err != nil {
		return err
	}
	if err := o.newPage(int64(offset)); err != nil {
		descriptors.give(f.pid, 1)
		return failure.New(op, failure.Errno(err, syscall.EIO), "the page: %v", err)
	}
	if o.UAR, err = f.ctx.NewUAR(id, o.page); err != nil {
		o.free()
		return err
	}
	h, err := f.objects.add(o)
	if err != nil {
		return err
	}
	f.uars[id] = o
	f.uarMu.Lock()
	f.bells[o] = struct{}{}
	f.uarMu.Unlock()
	c.give(allocUARHandle, uint64(h))
	return outputs(c.output64(allocUAROffset, offset), c.output32(allocUARLength, pageSize), c.output32(allocUARPage, id))
}
