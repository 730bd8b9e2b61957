//go:build linux

package uverbs

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// Device memory (DM): a small memory of the adapter itself, which programs map and register. Each
// open device has its own, in pages of the descriptor's file, so that a mapping needs no file of
// its own.

const (
	mapDeviceMem = 8 // MLX5_IB_MMAP_DEVICE_MEM

	// deviceMemPages is the size of the memory. The offset of a mapping has 8 bits for the
	// first 256 pages.
	deviceMemPages = 256

	// mostDeviceMem is the largest size of one allocation (max_dm_size).
	mostDeviceMem = deviceMemPages * pageSize / 2

	deviceMemAlign = 12 // logarithm of the largest alignment: pages are handed out

	deviceMemTypeMEMIC = 0 // enum mlx5_ib_uapi_dm_type: the others are for flow steering
)

// deviceMemory is the device memory of a File. The File's lock guards it.
type deviceMemory struct {
	all  []byte // nil: none was ever allocated
	used [deviceMemPages]bool
}

// dmObject is an allocation of whole pages.
type dmObject struct {
	file          *File
	page, pages   int
	length        uint64
	registrations int // memory regions on it
}

// bytes returns the allocation's memory.
func (o *dmObject) bytes() []byte { return o.file.dm.all[o.page*pageSize:][:o.length] }

// close frees the pages. The next allocation finds them zero.
func (o *dmObject) close() error {
	const op = "free device memory"
	if o.registrations > 0 {
		return failure.New(op, syscall.EBUSY, "%d memory regions are registered on it", o.registrations)
	}
	f := o.file
	err := unix.Fallocate(int(f.fd.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(mapDeviceMem<<8+o.page)*pageSize, int64(o.pages)*pageSize)
	if err != nil {
		return failure.New(op, failure.Errno(err, syscall.EIO), "%d pages: %v", o.pages, err)
	}
	clear(f.dm.used[o.page:][:o.pages])
	return nil
}

// open maps the memory into this process.
func (m *deviceMemory) open(f *File) (err error) {
	if m.all != nil {
		return nil
	}
	m.all, err = unix.Mmap(int(f.fd.Fd()), mapDeviceMem<<8*pageSize, deviceMemPages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return failure.New("allocate device memory", failure.Errno(err, syscall.EIO), "mapping it: %v", err)
	}
	return nil
}

// release unmaps the memory, on which no region may be registered any more.
func (m *deviceMemory) release() {
	if m.all != nil {
		unix.Munmap(m.all)
		m.all = nil
	}
}

// find returns the first of n free pages in a row, or -1.
func (m *deviceMemory) find(n int) int {
	run := 0
	for i, used := range m.used {
		if run++; used {
			run = 0
		}
		if run == n {
			return i + 1 - n
		}
	}
	return -1
}

func (c *command) allocDM() error {
	const op = "allocate device memory"
	v, err := c.needs(op, allocDMLength, allocDMAlignment)
	if err != nil {
		return err
	}
	length, align := v[0], v[1]
	if typ, ok := c.value(allocDMType); ok && typ != deviceMemTypeMEMIC {
		return failure.New(op, syscall.EOPNOTSUPP, "type %d: only memory that programs map (%d) is offered", typ, deviceMemTypeMEMIC)
	}
	switch {
	case length == 0 || length > mostDeviceMem:
		return failure.New(op, syscall.EINVAL, "%d bytes: must be 1 to %d", length, mostDeviceMem)
	case align > deviceMemAlign:
		return failure.New(op, syscall.EINVAL, "an alignment of 2^%d bytes: at most 2^%d", align, deviceMemAlign)
	}
	f := c.file
	o := &dmObject{file: f, pages: int((length + pageSize - 1) / pageSize), length: length}
	if o.page = f.dm.find(o.pages); o.page < 0 {
		return failure.New(op, syscall.ENOMEM, "no %d free pages in a row: an open device has %d pages", o.pages, deviceMemPages)
	}
	if err := f.dm.open(f); err != nil {
		return err
	}
	for i := range o.pages {
		f.dm.used[o.page+i] = true
	}
	h, err := f.objects.add(o)
	if err != nil {
		return err
	}
	c.give(allocDMHandle, uint64(h))
	return outputs(c.output64(allocDMStart, 0), c.output(allocDMPage, le.AppendUint16(nil, uint16(o.page))))
}

// queryDM answers ibv_import_dm.
func (c *command) queryDM() error {
	o, err := named[*dmObject](c, queryDMHandle, "query device memory")
	if err != nil {
		return err
	}
	return outputs(c.output64(queryDMStart, 0), c.output(queryDMPage, le.AppendUint16(nil, uint16(o.page))), c.output64(queryDMLength, o.length))
}

// regDMMR answers ibv_reg_dm_mr.
func (c *command) regDMMR() error {
	const op = "register device memory"
	v, err := c.needs(op, regDMMROffset, regDMMRLength, regDMMRPD, regDMMRAccess, regDMMRDM)
	if err != nil {
		return err
	}
	offset, length, access := v[0], v[1], uint32(v[3])
	pd, err := c.pd(uint32(v[2]))
	if err != nil {
		return err
	}
	o, err := get[*dmObject](&c.file.objects, v[4])
	if err != nil {
		return err
	}
	if offset > o.length || length > o.length-offset {
		return failure.New(op, syscall.EINVAL, "%d bytes from %d: the memory has %d", length, offset, o.length)
	}
	mr, err := c.file.ctx.RegDeviceMemory(pd, o.bytes()[offset:][:length:length], access)
	if err != nil {
		return err
	}
	o.registrations++
	h, err := c.file.objects.add(mrObject{MR: mr, dm: o})
	if err != nil {
		return err
	}
	c.give(regDMMRHandle, uint64(h))
	return outputs(c.output32(regDMMRLKey, mr.LKey()), c.output32(regDMMRRKey, mr.RKey()))
}

// mrObject is a memory region, of the program's memory, of device memory or of a dma-buf.
type mrObject struct {
	*adapter.MR
	dm     *dmObject // nil: not of device memory
	mapped []byte    // of a dma-buf

	dev     *Device
	watched *watched // nil: the memory is not watched
}

// unmap ends the mapping of a dma-buf, which the region no longer uses.
func (o mrObject) unmap() {
	if o.mapped != nil {
		unix.Munmap(o.mapped)
	}
}

func (o mrObject) close() error {
	if err := o.Close(); err != nil {
		return err
	}
	if o.dm != nil {
		o.dm.registrations--
	}
	o.unmap()
	if o.watched != nil {
		o.dev.unwatch(o.watched)
	}
	return nil
}
