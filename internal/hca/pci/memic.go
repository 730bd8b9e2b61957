package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Device memory (MEMIC): a small memory of the adapter itself, at the end of BAR 0. The driver allocates pages of
// it for programs, which map and register them (ibv_alloc_dm). An access of a processor is a trap.
//
// Linux's driver chooses the pages, and gives the firmware a range that has exactly their size. What is not allocated
// reads as zeros, and writes there change nothing. Keys name device memory by offsets in BAR 0, as the commands do.

const (
	memicSize  = 1 << 20
	memicStart = barSize - memicSize // in BAR 0
	memicMost  = memicSize / 2       // of one allocation
	memicPage  = 4096

	// The smallest alignment and size, and the largest alignment over it: the logarithms of 64 bytes and of 64.
	memicLogLeast, memicLogAlignment = 6, 6
)

var _ = register(map[prm.Command]handler{
	prm.CmdAllocMEMIC:   (*firmware).allocMEMIC,
	prm.CmdDeallocMEMIC: (*firmware).deallocMEMIC,
})

// allocMEMIC allocates the first free pages in the range that the command has.
func (f *firmware) allocMEMIC(c *call) error {
	const op = "ALLOC_MEMIC"
	align, from, room, size := c.in32(0x78, 8), prm.Bits(c.In, 0x80, 64), uint64(c.in32(0xc0, 32)), uint64(c.in32(0xe0, 32))
	switch {
	case size == 0 || size > memicMost:
		return failure.New(op, syscall.EINVAL, "%d bytes: must be 1 to %d", size, memicMost)
	case align > memicLogAlignment:
		return failure.New(op, syscall.EINVAL, "an alignment of 2^%d times %d bytes: at most 2^%d", align, 1<<memicLogLeast, memicLogAlignment)
	case from < memicStart || from > barSize || from%memicPage != 0 || room > barSize-from:
		return failure.New(op, syscall.EINVAL, "a range of %#x bytes at %#x: the memory has %#x at %#x, in pages of %d", room, from, memicSize, memicStart, memicPage)
	}
	size = (size + memicPage - 1) &^ (memicPage - 1)
	for at := from; at+size <= from+room; at += memicPage {
		if f.memic.Add(guestmem.Range{Addr: at, Size: size, View: make([]byte, size)}) == nil {
			c.set(0x40, 64, at)
			return nil
		}
	}
	return failure.New(op, syscall.ENOMEM, "no %#x free bytes in the %#x at %#x", size, room, from)
}

// deallocMEMIC frees an allocation. Keys that still name it fail.
func (f *firmware) deallocMEMIC(c *call) error {
	at, size := prm.Bits(c.In, 0x80, 64), uint64(c.in32(0xc0, 32))
	freed, err := f.memic.Remove(at, (size+memicPage-1)&^(memicPage-1))
	if err == nil && freed == 0 {
		err = failure.New("DEALLOC_MEMIC", syscall.EINVAL, "%#x bytes at %#x: they are not allocated", size, at)
	}
	return err
}

// deviceMemory returns the device memory, in which addresses are offsets in BAR 0; nil: the device is not attached.
func (d *Device) deviceMemory() *guestmem.Map {
	if fw := d.firmware(); fw != nil {
		return fw.memic
	}
	return nil
}
