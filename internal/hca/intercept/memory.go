//go:build linux && (amd64 || arm64)

package intercept

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// memoryCalls are the system calls that change mappings, beside mmap.
var memoryCalls = []row{
	{nr: unix.SYS_MUNMAP}, {nr: unix.SYS_MREMAP}, {nr: unix.SYS_MPROTECT}, {nr: unix.SYS_PKEY_MPROTECT}, {nr: unix.SYS_MADVISE, where: "madvise"},
}

// changes reports the changes of a call. The kernel makes them afterwards.
func (s *Supervisor) changes(c *Call) {
	a := &c.n.Args
	report := func(call string, addr, length uint64, gone bool, prot uint64) {
		if length == 0 {
			return
		}
		s.cfg.Memory(procmem.Change{
			Process: c.Process(), Call: call, Addr: addr, Length: length, Where: c.where(),
			Gone: gone, Readable: prot&unix.PROT_READ != 0, Writable: prot&unix.PROT_WRITE != 0,
		})
	}
	switch uint32(c.n.Nr) {
	case unix.SYS_MUNMAP:
		report("munmap", a[0], a[1], true, 0)
	case unix.SYS_MADVISE:
		report("madvise", a[0], a[1], true, 0)
	case unix.SYS_MMAP:
		if a[3]&unix.MAP_FIXED != 0 {
			report("mmap", a[0], a[1], true, 0)
		}
	case unix.SYS_MPROTECT, unix.SYS_PKEY_MPROTECT:
		report("mprotect", a[0], a[1], false, a[2])
	case unix.SYS_MREMAP:
		at, old, size, flags := a[0], a[1], a[2], a[3]
		switch {
		case flags&unix.MREMAP_FIXED != 0:
			report("mremap", a[4], size, true, 0)
			report("mremap", at, old, true, 0)
		case size < old:
			report("mremap", at+size, old-size, true, 0)
		case size > old && flags&unix.MREMAP_MAYMOVE != 0 && !c.free(at+old, size-old):
			report("mremap", at, old, true, 0) // the mapping cannot grow where it is
		}
	}
}

// free reports whether nothing is mapped in a range of the caller's memory.
func (c *Call) free(addr, length uint64) bool {
	p, err := c.Memory()
	if err != nil {
		return false
	}
	defer p.Close()
	return p.Free(addr, length)
}

// where describes the code that makes the call: its program counter and, if it is a function of the C
// library, the place that the function returns to.
func (c *Call) where() string {
	text := "program counter " + c.place(c.n.IP)
	// The last two fields of /proc/TID/syscall are the stack pointer and the program counter.
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", c.Thread()))
	fields := strings.Fields(string(line))
	var sp uint64
	if len(fields) < 2 {
		return text
	}
	if _, err := fmt.Sscanf(fields[len(fields)-2], "0x%x", &sp); err != nil {
		return text
	}
	var b [8]byte
	if procmem.ReadThread(c.Thread(), sp, b[:]) != nil {
		return text
	}
	if from := c.place(binary.LittleEndian.Uint64(b[:])); strings.Contains(from, "(") {
		text += ", called from " + from
	}
	return text
}

// place writes an address and, if it is code, the file that it is mapped from, with the offset there.
func (c *Call) place(addr uint64) string {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", c.Thread()))
	if err == nil {
		defer maps.Close()
		for lines := bufio.NewScanner(maps); lines.Scan(); {
			var start, end, offset uint64
			var perms, dev, file string
			var inode uint64
			n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d %s", &start, &end, &perms, &offset, &dev, &inode, &file)
			if n == 7 && start <= addr && addr < end && len(perms) > 2 && perms[2] == 'x' {
				return fmt.Sprintf("%#x (%s+%#x)", addr, filepath.Base(file), addr-start+offset)
			}
		}
	}
	return fmt.Sprintf("%#x", addr)
}
