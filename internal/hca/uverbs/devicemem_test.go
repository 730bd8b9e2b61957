//go:build linux

package uverbs

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// deviceMemory allocates device memory and returns its handle and its first page.
func (p *program) deviceMemory(length uint64) (handle uint64, page uint16, errno syscall.Errno) {
	p.t.Helper()
	start, at := p.out(allocDMStart, 8), p.out(allocDMPage, 2)
	attrs, errno := p.ioctl(objDM, dmAlloc, num(allocDMHandle, 0), num(allocDMLength, length), num(allocDMAlignment, 3), start, at)
	if errno == 0 && p.at(start.data, 8).u64(0) != 0 {
		p.t.Errorf("the memory begins at %d of its page", p.at(start.data, 8).u64(0))
	}
	return attrs[0].data, p.at(at.data, 2).u16(0), errno
}

// registerDM registers n bytes of device memory from off.
func (p *program) registerDM(pd uint32, dm, off, n uint64, access rdma.Access) (handle uint64, errno syscall.Errno) {
	attrs, errno := p.ioctl(objMR, mrRegDM, num(regDMMRHandle, 0), num(regDMMROffset, off), num(regDMMRLength, n),
		num(regDMMRPD, uint64(pd)), num(regDMMRAccess, uint64(access)), num(regDMMRDM, dm), p.out(regDMMRLKey, 4), p.out(regDMMRRKey, 4))
	return attrs[0].data, errno
}

// TestDeviceMemory allocates device memory, maps and registers it, and frees it.
func TestDeviceMemory(t *testing.T) {
	p := newProgram(t, newDevice(t))
	pd := p.pd()
	dm, page, errno := p.deviceMemory(5000)
	if errno != 0 {
		t.Fatal(errno)
	}
	// A mapping by its offset is the memory that regions use.
	const at = mapDeviceMem << 8
	view, err := unix.Mmap(int(p.file.fd.Fd()), int64(at+int(page))*pageSize, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal.If(t, err)
	defer unix.Munmap(view)
	copy(view[4990:], "device memory")
	o, err := get[*dmObject](&p.file.objects, dm)
	if err != nil || !bytes.Equal(o.bytes()[4990:], []byte("device mem")) {
		t.Errorf("%q, %v", o.bytes()[4990:], err)
	}
	for name, v := range map[string]struct {
		off, n uint64
		access rdma.Access
	}{
		"behind the end":          {4000, 1001, rdma.ZeroBased},
		"an offset behind it":     {5001, 0, rdma.ZeroBased},
		"an offset near 2^64":     {1<<64 - 8, 16, rdma.ZeroBased},
		"not zero-based":          {0, 5000, rdma.LocalWrite},
		"with windows":            {0, 5000, rdma.ZeroBased | ibv.MWBind},
		"remote without local":    {0, 5000, rdma.ZeroBased | rdma.RemoteWrite},
		"with on-demand paging":   {0, 5000, rdma.ZeroBased | 1<<6},
		"with access flag 1 << 9": {0, 5000, rdma.ZeroBased | 1<<9},
	} {
		if _, errno := p.registerDM(pd, dm, v.off, v.n, v.access); errno != syscall.EINVAL {
			t.Errorf("%s: %v", name, errno)
		}
	}
	mr, errno := p.registerDM(pd, dm, 1000, 4000, rdma.ZeroBased|rdma.LocalWrite|rdma.RemoteAtomic)
	if errno != 0 {
		t.Fatal(errno)
	}
	rereg := make(fields, 48)
	rereg.put32(8, uint32(mr))
	rereg.put32(12, 1<<2)
	if _, errno := p.write(cmdReregMR, rereg, 8); errno != syscall.EOPNOTSUPP {
		t.Errorf("registered again: %v", errno)
	}
	if _, errno := p.ioctl(objDM, dmFree, num(attrHandle, dm)); errno != syscall.EBUSY {
		t.Errorf("freed with a region on it: %v", errno)
	}
	p.must(objMR, mrDestroy, num(attrHandle, mr))
	p.must(objDM, dmFree, num(attrHandle, dm))

	// What was there before does not show, and pages are found where they are free.
	for _, n := range []uint64{0, mostDeviceMem + 1, 1<<64 - 1} {
		if _, _, errno := p.deviceMemory(n); errno != syscall.EINVAL {
			t.Errorf("%d bytes: %v", n, errno)
		}
	}
	if _, errno := p.ioctl(objDM, dmAlloc, num(allocDMHandle, 0), num(allocDMLength, 64), num(allocDMAlignment, 63)); errno != syscall.EINVAL {
		t.Errorf("an alignment of 2^63: %v", errno)
	}
	var all []uint64
	for range 2 {
		h, first, errno := p.deviceMemory(mostDeviceMem)
		if errno != 0 {
			t.Fatal(errno)
		}
		all = append(all, h)
		if first == page && !bytes.Equal(view, make([]byte, len(view))) {
			t.Error("bytes of the freed memory are there")
		}
	}
	if _, _, errno := p.deviceMemory(1); errno != syscall.ENOMEM {
		t.Errorf("beyond the device's memory: %v", errno)
	}
	p.must(objDM, dmFree, num(attrHandle, all[0]))
	if _, _, errno := p.deviceMemory(1); errno != 0 {
		t.Errorf("after one was freed: %v", errno)
	}
}

// TestDMABufRefused asks for regions of descriptors that are no dma-buf, and of ranges that no dma-buf can have. The
// test TestDMABuf of interop makes regions of real ones, in a guest whose kernel has an exporter.
func TestDMABufRefused(t *testing.T) {
	p := newProgram(t, newDevice(t))
	pd := p.pd()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	fatal.If(t, err)
	defer unix.Close(fd)
	for name, v := range map[string]struct {
		offset, length, iova uint64
		fd                   int
		access               rdma.Access
		want                 syscall.Errno
	}{
		"a file":             {0, 4096, 0, fd, rdma.LocalWrite, syscall.EINVAL},
		"no descriptor":      {0, 4096, 0, 1 << 20, rdma.LocalWrite, syscall.EBADF},
		"a negative number":  {0, 4096, 0, -1, rdma.LocalWrite, syscall.EBADF},
		"no bytes":           {0, 0, 0, fd, rdma.LocalWrite, syscall.EINVAL},
		"another page place": {8, 4096, 0, fd, rdma.LocalWrite, syscall.EINVAL},
		"beyond 2^64":        {4096, 1<<64 - 4096, 0, fd, rdma.LocalWrite, syscall.EINVAL},
	} {
		_, errno := p.ioctl(objMR, mrRegDMABuf, num(regDMABufHandle, 0), num(regDMABufPD, uint64(pd)), num(regDMABufOffset, v.offset), num(regDMABufLength, v.length),
			num(regDMABufIOVA, v.iova), num(regDMABufFD, uint64(v.fd)), num(regDMABufAccess, uint64(v.access)), p.out(regDMABufLKey, 4), p.out(regDMABufRKey, 4))
		if errno != v.want {
			t.Errorf("%s: %v, want %v", name, errno, v.want)
		}
	}
}

// TestDMABufUnmapped looks for the mapping behind a region of a dma-buf: it ends with the region, and with the file of a
// program that ends without a word.
func TestDMABufUnmapped(t *testing.T) {
	for _, deregisters := range []bool{true, false} {
		p := newProgram(t, newDevice(t))
		pd, err := p.file.ctx.AllocPD()
		fatal.If(t, err)
		// The mapping is found by its name. Another one of this process may take its address at once.
		name := fmt.Sprintf("TestDMABufUnmapped-%v", deregisters)
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		fatal.If(t, err)
		mapped, err := unix.Mmap(fd, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		unix.Close(fd)
		fatal.If(t, err)
		isMapped := func() bool {
			maps, err := os.ReadFile("/proc/self/maps")
			fatal.If(t, err)
			return bytes.Contains(maps, []byte(name))
		}
		mr, err := p.file.ctx.RegDMABuf(pd, mapped, 0x1000, uint32(rdma.LocalWrite))
		fatal.If(t, err)
		h, err := p.file.objects.add(mrObject{MR: mr, mapped: mapped})
		fatal.If(t, err)
		if !isMapped() {
			t.Fatal("the memory is not mapped before the region ends")
		}
		if deregisters {
			p.must(objMR, mrDestroy, num(attrHandle, uint64(h)))
		} else {
			p.file.Close()
		}
		if isMapped() {
			t.Errorf("deregistered %v: the memory is still mapped", deregisters)
		}
	}
}
