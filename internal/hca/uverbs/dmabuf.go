//go:build linux

package uverbs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/rdma"
)

// Regions of dma-bufs: memory that a driver, the exporter, shares by a descriptor. The adapter
// maps it.

const dmaBufMagic = 0x444d4142 // DMA_BUF_MAGIC, of the file system of dma-bufs

// mappable are the exporters whose memory stays where it is while it is mapped. An exporter that moves its
// memory, as drivers of GPUs do, may take it away from a mapping, and an access then kills the process that
// makes it.
var mappable = map[string]bool{"udmabuf": true, "system": true}

// exporter returns the name of a dma-buf's exporter, which the kernel has in its fdinfo.
func exporter(f *os.File) string {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	for line := range bytes.Lines(info) {
		if name, ok := bytes.CutPrefix(line, []byte("exp_name:")); ok {
			return string(bytes.TrimSpace(name))
		}
	}
	return ""
}

// regDMABuf answers ibv_reg_dmabuf_mr, with the kernel's checks and errors (uverbs_std_types_mr.c,
// ib_umem_dmabuf_get).
func (c *command) regDMABuf() error {
	const op = "register a dma-buf"
	v, err := c.needs(op, regDMABufPD, regDMABufOffset, regDMABufLength, regDMABufIOVA, regDMABufFD, regDMABufAccess)
	if err != nil {
		return err
	}
	offset, length, iova, fd, access := v[1], v[2], v[3], int(int32(v[4])), uint32(v[5])
	if flags, _ := c.value(regDMABufFlags); flags != 0 {
		return failure.New(op, syscall.EOPNOTSUPP, "flags %#x: there is no data direct path", flags)
	}
	pd, err := c.pd(uint32(v[0]))
	switch {
	case err != nil:
		return err
	case (offset^iova)%pageSize != 0:
		return failure.New(op, syscall.EINVAL, "offset %#x and address %#x: must be at the same place of a page", offset, iova)
	case length == 0 || offset+length < offset:
		return failure.New(op, syscall.EINVAL, "%d bytes from %d: must be 1 or more, and not beyond the last address", length, offset)
	}
	f, err := c.Copy(fd)
	if err != nil {
		return failure.New(op, syscall.EBADF, "descriptor %d: %v", fd, err)
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != dmaBufMagic {
		return failure.New(op, syscall.EINVAL, "descriptor %d is no dma-buf", fd)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || offset+length > uint64(size) {
		return failure.New(op, syscall.EINVAL, "%d bytes from %d: the dma-buf has %d", length, offset, size)
	}
	if name := exporter(f); !mappable[name] {
		return failure.New(op, syscall.EOPNOTSUPP, "the dma-buf's exporter is %q: the memory of udmabuf and of the system heap can be mapped", name)
	}
	prot := unix.PROT_READ
	if access&uint32(rdma.LocalWrite) != 0 {
		prot |= unix.PROT_WRITE
	}
	first := offset &^ (pageSize - 1)
	mapped, err := unix.Mmap(int(f.Fd()), int64(first), int(offset+length-first), prot, unix.MAP_SHARED)
	if err != nil {
		return failure.New(op, syscall.EOPNOTSUPP, "the dma-buf cannot be mapped: %v", err)
	}
	mr, err := c.file.ctx.RegDMABuf(pd, mapped[offset-first:], iova, access)
	if err != nil {
		unix.Munmap(mapped)
		return err
	}
	h, err := c.file.objects.add(mrObject{MR: mr, mapped: mapped})
	if err != nil {
		return err
	}
	c.give(regDMABufHandle, uint64(h))
	return outputs(c.output32(regDMABufLKey, mr.LKey()), c.output32(regDMABufRKey, mr.RKey()))
}
