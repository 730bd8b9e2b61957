package procmem

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Mapping is a range of a process's addresses and the file mapped there.
type Mapping struct {
	Start, End         uint64
	Offset             uint64 // of Start in the file
	Inode              uint64 // 0: no file
	Shared             bool
	Readable, Writable bool
}

// The PROCMAP_QUERY request of <linux/fs.h>, which x/sys does not have. Linux has it from 6.11 on.
const (
	procmapQuery = 0xc0686611 // _IOWR('f', 17, struct procmap_query)

	// Flags of a query and of its answer.
	procmapReadable = 1    // PROCMAP_QUERY_VMA_READABLE
	procmapWritable = 2    // PROCMAP_QUERY_VMA_WRITABLE
	procmapShared   = 8    // PROCMAP_QUERY_VMA_SHARED
	procmapNext     = 0x10 // PROCMAP_QUERY_COVERING_OR_NEXT_VMA
)

// procmap is struct procmap_query.
type procmap struct {
	size, query, addr       uint64
	start, end, flags       uint64
	pageSize, offset, inode uint64
	devMajor, devMinor      uint32
	nameSize, buildIDSize   uint32
	nameAddr, buildIDAddr   uint64
}

// mappingAt returns the mapping that holds addr or, if there is none, the next one; the zero value
// if no mapping follows. A program has a mapping for each queue that it creates, so to read all of
// them for each queue would take longer the more queues there are.
func (p *Process) mappingAt(addr uint64) (found Mapping, err error) {
	q := procmap{addr: addr, query: procmapNext}
	q.size = uint64(unsafe.Sizeof(q))
	errno := unix.ENOTTY
	if !p.listOnly {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, p.list.Fd(), procmapQuery, uintptr(unsafe.Pointer(&q)))
		runtime.KeepAlive(p.list)
	}
	switch errno {
	case 0:
		return Mapping{Start: q.start, End: q.end, Offset: q.offset, Inode: q.inode,
			Shared: q.flags&procmapShared != 0, Readable: q.flags&procmapReadable != 0, Writable: q.flags&procmapWritable != 0}, nil
	case unix.ENOENT:
		return found, nil
	case unix.ESRCH:
		return found, errno
	}
	// The kernel has no such request.
	err = p.mappings(func(m Mapping) bool {
		if addr < m.End {
			found = m
		}
		return found.End != 0
	})
	return found, err
}

// mappings calls f with each mapping of the process until f returns true.
func (p *Process) mappings(f func(Mapping) bool) error {
	maps, err := io.ReadAll(io.NewSectionReader(p.list, 0, 1<<40))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(maps) {
		if m, ok := parseMapping(line); ok && f(m) {
			return nil
		}
	}
	return nil
}

// MappingAt returns the mapping that holds addr.
func (p *Process) MappingAt(addr uint64) (Mapping, error) {
	found, err := p.mappingAt(addr)
	switch {
	case err != nil:
		return found, err
	case !p.Alive():
		return Mapping{}, syscall.ESRCH
	case found.End == 0 || addr < found.Start:
		return Mapping{}, syscall.EFAULT
	}
	return found, nil
}

// Free reports whether nothing is mapped in a range of addresses.
func (p *Process) Free(addr, length uint64) bool {
	m, err := p.mappingAt(addr)
	return err == nil && (m.End == 0 || m.Start >= addr+length)
}

// AddressOf returns where the process has mapped a file that is shared; 0 if it has not.
func (p *Process) AddressOf(inode uint64) uint64 {
	var addr uint64
	p.mappings(func(m Mapping) bool {
		if m.Shared && m.Inode == inode {
			addr = m.Start
		}
		return addr != 0
	})
	if !p.Alive() {
		return 0
	}
	return addr
}

// Pinnable returns nil if the kernel would pin the pages of a range of addresses for an adapter that
// reads them and, if write is set, also writes them. Otherwise it returns an error, EFAULT, that says
// which page the kernel would refuse: every page must be mapped, readable or, if write is set,
// writable, and memory: not a device's, and not beyond the end of its file.
func (p *Process) Pinnable(addr, length uint64, write bool) error {
	const page = 4096
	var room [batch]Vec
	var bytes [batch]byte
	probes := room[:0]
	for at, end := addr&^(page-1), addr+length; at < end; {
		m, err := p.mappingAt(at)
		switch {
		case err != nil:
			return unpinnable("the mappings of process %d cannot be read: %v", p.pid, err)
		case m.End == 0 || m.Start > at:
			return unpinnable("nothing is mapped at %#x", at)
		case write && !m.Writable:
			return unpinnable("the mapping %#x-%#x at %#x is not writable (%s): for a region that only sends, leave out local writing, remote writing, atomics and windows", m.Start, m.End, at, m.rights())
		case !write && !m.Readable:
			return unpinnable("the mapping %#x-%#x at %#x is not readable (%s)", m.Start, m.End, at, m.rights())
		}
		// A file that is shorter than its mapping has no pages after its end, so that the last page
		// speaks for all. A page that may be written but not read cannot be tried.
		if m.Readable {
			n := len(probes)
			probes = append(probes, Vec{Addr: min(m.End, end) - 1, Buf: bytes[n : n+1]})
		}
		if len(probes) == batch {
			if err := p.probe(probes); err != nil {
				return err
			}
			probes = probes[:0]
		}
		at = m.End
	}
	return p.probe(probes)
}

// probe returns an error if one of the bytes cannot be read.
func (p *Process) probe(probes []Vec) error {
	err := p.ReadV(probes)
	if err == nil {
		return nil
	}
	for i := range probes {
		if p.ReadV(probes[i:i+1]) != nil {
			return unpinnable("the page of %#x is mapped, but no memory: it lies beyond the end of its file, or belongs to a device (%v)", probes[i].Addr, err)
		}
	}
	return nil // another thread has mapped the page meanwhile
}

// pinError says which page the kernel would refuse to pin. It is EFAULT.
type pinError string

func (e pinError) Error() string        { return string(e) }
func (e pinError) Is(target error) bool { return target == syscall.EFAULT }

func unpinnable(format string, args ...any) error { return pinError(fmt.Sprintf(format, args...)) }

// rights writes the rights of a mapping as /proc/PID/maps does.
func (m *Mapping) rights() string {
	b := []byte("--p")
	if m.Readable {
		b[0] = 'r'
	}
	if m.Writable {
		b[1] = 'w'
	}
	if m.Shared {
		b[2] = 's'
	}
	return string(b)
}

// parseMapping reads a line of /proc/PID/maps: "start-end perms offset dev inode path".
func parseMapping(line []byte) (m Mapping, ok bool) {
	f := bytes.Fields(line)
	if len(f) < 5 || len(f[1]) < 4 {
		return m, false
	}
	from, to, found := bytes.Cut(f[0], []byte("-"))
	if !found {
		return m, false
	}
	var errs [4]error
	m.Start, errs[0] = strconv.ParseUint(string(from), 16, 64)
	m.End, errs[1] = strconv.ParseUint(string(to), 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(string(f[2]), 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(string(f[4]), 10, 64)
	if cmp.Or(errs[:]...) != nil {
		return m, false
	}
	m.Readable, m.Writable, m.Shared = f[1][0] == 'r', f[1][1] == 'w', f[1][3] == 's'
	return m, true
}
