package procmem

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Vec is a piece of a process's memory, and the bytes that are read from it or
// written to it.
type Vec = struct {
	Addr uint64
	Buf  []byte
}

// batch is the number of pieces that one system call moves. The kernel takes up
// to 1024; the two vectors of this many stay on the stack.
const batch = 64

// ReadThread fills dst from addr in the memory of a thread that the caller keeps from ending:
// the number of a thread says nothing about the one that had it before.
func ReadThread(thread int, addr uint64, dst []byte) error {
	v := [1]Vec{{addr, dst}}
	return transfer(unix.SYS_PROCESS_VM_READV, thread, v[:])
}

// WriteThread copies src to addr in the memory of a thread that the caller keeps from ending.
func WriteThread(thread int, addr uint64, src []byte) error {
	v := [1]Vec{{addr, src}}
	return transfer(unix.SYS_PROCESS_VM_WRITEV, thread, v[:])
}

func transfer[V ~struct {
	Addr uint64
	Buf  []byte
}](trap uintptr, pid int, vecs []V) error {
	var local [batch]unix.Iovec
	var remote [batch]unix.RemoteIovec
	for len(vecs) > 0 {
		n, ranges, total := 0, 0, 0
		for len(vecs) > 0 && n < batch {
			v := Vec(vecs[0])
			vecs = vecs[1:]
			if len(v.Buf) == 0 {
				continue
			}
			local[n].Base = &v.Buf[0]
			local[n].SetLen(len(v.Buf))
			total += len(v.Buf)
			n++
			// Adjacent pieces are one range of the process: each range costs about as
			// much as copying a kilobyte.
			if ranges > 0 && remote[ranges-1].Base+uintptr(remote[ranges-1].Len) == uintptr(v.Addr) {
				remote[ranges-1].Len += len(v.Buf)
				continue
			}
			remote[ranges] = unix.RemoteIovec{Base: uintptr(v.Addr), Len: len(v.Buf)}
			ranges++
		}
		if n == 0 {
			return nil
		}
		moved, _, errno := syscall.Syscall6(trap, uintptr(pid), uintptr(unsafe.Pointer(&local[0])), uintptr(n),
			uintptr(unsafe.Pointer(&remote[0])), uintptr(ranges), 0)
		if errno != 0 {
			return errno
		}
		if int(moved) != total {
			return syscall.EFAULT
		}
	}
	return nil
}

// A Mapping is a range of a process's addresses and the file mapped there.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // of Start in the file
	Inode      uint64 // 0: no file
	Shared     bool
}

// The PROCMAP_QUERY request of <linux/fs.h>, which x/sys does not have. Linux has it from 6.11 on.
const (
	procmapQuery  = 0xc0686611 // _IOWR('f', 17, struct procmap_query)
	procmapShared = 8          // PROCMAP_QUERY_VMA_SHARED, in flags
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

// mappingAt returns the mapping of a process that holds addr, the zero value if there is none. A
// program has a mapping for each queue that it creates, so to read all of them for each queue
// would take longer the more queues there are.
func mappingAt(pid int, addr uint64) (found Mapping, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return found, err
	}
	defer maps.Close()
	q := procmap{addr: addr}
	q.size = uint64(unsafe.Sizeof(q))
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), procmapQuery, uintptr(unsafe.Pointer(&q)))
	switch errno {
	case 0:
		return Mapping{Start: q.start, End: q.end, Offset: q.offset, Inode: q.inode, Shared: q.flags&procmapShared != 0}, nil
	case unix.ENOENT:
		return found, nil
	case unix.ESRCH:
		return found, errno
	}
	// The kernel has no such request.
	err = mappings(pid, func(m Mapping) bool {
		if m.Start <= addr && addr < m.End {
			found = m
		}
		return found.End != 0
	})
	return found, err
}

// mappings calls f with each mapping of a process until f returns true.
func mappings(pid int, f func(Mapping) bool) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
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
	for _, err := range errs {
		if err != nil {
			return m, false
		}
	}
	m.Shared = f[1][3] == 's'
	return m, true
}
