//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/operr"
)

// The commands of protection domains, memory regions and windows.

func (c *command) allocPD(fields) error {
	pd, err := c.file.ctx.AllocPD()
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(pdObject{pd})
	if err != nil {
		return err
	}
	return outputs(c.output32(coreOut, h), c.output32(uhwOut, pd.Number()))
}

func (c *command) queryPD() error {
	h, err := c.need(driver, "query PD")
	if err != nil {
		return err
	}
	pd, err := get[pdObject](&c.file.objects, h)
	if err != nil {
		return err
	}
	return c.output32(driver+1, pd.Number())
}

func (c *command) pd(handle uint32) (*adapter.PD, error) {
	o, err := get[pdObject](&c.file.objects, uint64(handle))
	return o.PD, err
}

// regMR answers REG_MR: struct ib_uverbs_reg_mr.
func (c *command) regMR(in fields) error {
	pd, err := c.pd(in.u32(32))
	if err != nil {
		return err
	}
	mr, err := c.file.ctx.RegMR(pd, in.u64(8), in.u64(16), in.u64(24), in.u32(36))
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(mrObject{mr})
	if err != nil {
		return err
	}
	r := make(fields, 12)
	r.put32(0, h)
	r.put32(4, mr.LKey())
	r.put32(8, mr.RKey())
	return c.output(coreOut, r)
}

// The flags of enum ib_uverbs' rereg_mr.
const reregPD = 1 << 1

// reregMR answers REREG_MR: struct ib_uverbs_rereg_mr.
func (c *command) reregMR(in fields) error {
	mr, err := get[mrObject](&c.file.objects, uint64(in.u32(8)))
	if err != nil {
		return err
	}
	flags := in.u32(12)
	var pd *adapter.PD
	if flags&reregPD != 0 {
		if pd, err = c.pd(in.u32(40)); err != nil {
			return err
		}
	}
	if err := mr.Rereg(flags, pd, in.u64(16), in.u64(24), in.u64(32), in.u32(44)); err != nil {
		return err
	}
	r := make(fields, 8)
	r.put32(0, mr.LKey())
	r.put32(4, mr.RKey())
	return c.output(coreOut, r)
}

func (c *command) queryMR() error {
	h, err := c.need(0, "query MR")
	if err != nil {
		return err
	}
	mr, err := get[mrObject](&c.file.objects, h)
	if err != nil {
		return err
	}
	return outputs(c.output32(1, mr.LKey()), c.output32(2, mr.RKey()), c.output64(3, mr.Length()), c.output64(4, mr.IOVA()))
}

// allocMW answers ALLOC_MW: struct ib_uverbs_alloc_mw.
func (c *command) allocMW(in fields) error {
	pd, err := c.pd(in.u32(8))
	if err != nil {
		return err
	}
	mw, err := c.file.ctx.AllocMW(pd, int(in.u8(12)))
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(mwObject{mw})
	if err != nil {
		return err
	}
	r := make(fields, 8)
	r.put32(0, h)
	r.put32(4, mw.RKey())
	return c.output(coreOut, r)
}

// createAH answers CREATE_AH: struct ib_uverbs_create_ah.
func (c *command) createAH(in fields) error {
	pd, err := c.pd(in.u32(16))
	if err != nil {
		return err
	}
	ah, err := c.file.ctx.CreateAH(pd, ahAttr(in, 24))
	if err != nil {
		return err
	}
	h, err := c.file.objects.add(ahObject{ah})
	if err != nil {
		return err
	}
	uhw := make(fields, 16) // struct mlx5_ib_create_ah_resp
	uhw.put32(0, uint32(min(len(uhw), c.room(uhwOut))))
	mac := ah.DMAC()
	copy(uhw[4:], mac[:])
	return outputs(c.output32(coreOut, h), c.output(uhwOut, uhw))
}

// ahAttr reads struct ib_uverbs_ah_attr.
func ahAttr(in fields, at int) adapter.AHAttr {
	var a adapter.AHAttr
	for i := range a.DGID {
		a.DGID[i] = in.u8(at + i)
	}
	a.FlowLabel = in.u32(at + 16)
	a.SGIDIndex = in.u8(at + 20)
	a.HopLimit = in.u8(at + 21)
	a.TrafficClass = in.u8(at + 22)
	a.DLID = in.u16(at + 24)
	a.SL = in.u8(at + 26)
	a.SrcPathBits = in.u8(at + 27)
	a.StaticRate = in.u8(at + 28)
	a.IsGlobal = in.u8(at+29) != 0
	a.Port = in.u8(at + 30)
	return a
}

// xrcdFile is the file that names an XRC domain.
type xrcdFile struct{ dev, ino uint64 }

// xrcdObject is one open of an XRC domain.
type xrcdObject struct {
	*adapter.XRCD
	file *File
	name xrcdFile // zero: none
}

func (o *xrcdObject) close() error {
	d := o.file.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.xrcds[o.name]
	if x != nil && x.opens > 1 {
		x.opens--
		return nil
	}
	if err := o.XRCD.Close(); err != nil {
		return err
	}
	if x != nil {
		delete(d.xrcds, o.name)
	}
	return nil
}

// namedXRCD is an XRC domain that a file names.
type namedXRCD struct {
	*adapter.XRCD
	file  *File
	opens int
}

// openXRCD answers OPEN_XRCD: struct ib_uverbs_open_xrcd. The descriptor of a
// file, if there is one, names a domain that every open of the file gets.
func (c *command) openXRCD(in fields) error {
	const op = "open XRCD"
	const noFile = 0xffffffff
	const create, exclusive = 0o100, 0o200 // O_CREAT, O_EXCL
	o := &xrcdObject{file: c.file}
	var err error
	if fd := in.u32(8); fd == noFile {
		if in.u32(12)&create == 0 {
			return operr.New(op, syscall.EINVAL, "no descriptor and no O_CREAT: nothing names a domain")
		}
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

// openNamed opens the domain that a file names. The domain is one context's: its
// objects stand in one program's memory.
func (c *command) openNamed(o *xrcdObject, fd int, create, exclusive bool) error {
	const op = "open XRCD"
	dev, ino, ok := c.FileID(fd)
	if !ok {
		return operr.New(op, syscall.EBADF, "descriptor %d is not open", fd)
	}
	o.name = xrcdFile{dev, ino}
	d := c.file.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.xrcds[o.name]
	switch {
	case x == nil && !create:
		return operr.New(op, syscall.ENOENT, "descriptor %d: its file names no domain, and O_CREAT is not given", fd)
	case x == nil:
		made, err := c.file.ctx.OpenXRCD()
		if err != nil {
			return err
		}
		x = &namedXRCD{XRCD: made, file: c.file}
		d.xrcds[o.name] = x
	case exclusive:
		return operr.New(op, syscall.EINVAL, "descriptor %d: its file names a domain already, and O_EXCL is given", fd)
	case x.file != c.file:
		return operr.New(op, syscall.EOPNOTSUPP, "descriptor %d: the domain of its file is another open device's; programs do not share one", fd)
	}
	x.opens++
	o.XRCD = x.XRCD
	return nil
}
