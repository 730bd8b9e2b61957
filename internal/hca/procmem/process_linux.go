package procmem

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Process is the memory of one process: the address space that the process has when it is
// opened. The number of a process passes to another one after its end, and a process that
// executes a program gets another address space. In both cases every later transfer is ESRCH.
//
// Its methods, and the functions that take it, are safe for concurrent use.
type Process struct {
	pid int
	// space is a file of /proc that keeps referring to the address space: PID/pagemap, or PID/mem
	// where the kernel has no page maps. Transfers do not go through PID/mem, because it takes one
	// range at a time, copies twice, and writes to pages that are read-only.
	space *os.File
	fd    int  // of space
	maps  bool // space is PID/pagemap
	ended atomic.Bool
}

// Open opens the memory of the process with a number. The caller makes sure that the number is
// still that of the process it means after Open has returned.
func Open(pid int) (*Process, error) {
	// PID/mem takes the rights that transfers take; PID/pagemap takes less.
	return open(pid, "mem", pageMaps)
}

const pageMaps = "pagemap"

// open is Open with the names of the files that tell whether the address space exists, of which the last one
// that the kernel has is kept. The first one must exist.
func open(pid int, names ...string) (*Process, error) {
	fd, maps := -1, false
	for _, name := range names {
		next, err := unix.Open(fmt.Sprintf("/proc/%d/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			if fd >= 0 {
				unix.Close(fd)
			}
			fd, maps = next, name == pageMaps
		case fd < 0:
			return nil, err
		}
	}
	return &Process{pid: pid, space: os.NewFile(uintptr(fd), "address space"), fd: fd, maps: maps}, nil
}

// Close frees the descriptor. No method may be called afterwards. The garbage collector closes a
// Process that is not referred to any more.
func (p *Process) Close() { p.space.Close() }

// Pid returns the number of the process, for messages: it may be another one's by now.
func (p *Process) Pid() int { return p.pid }

// End makes transfers fail from now on: the process has ended. It is for a process whose address
// space lives on in another one that shares it (CLONE_VM).
func (p *Process) End() { p.ended.Store(true) }

// nowhere is an address that no process can map, on any processor.
const nowhere = 1 << 62

// Alive reports whether the process has the address space that it had when it was opened.
func (p *Process) Alive() bool {
	if p.ended.Load() {
		return false
	}
	// Without an address space a read is the end of the file. Otherwise it fails: page maps are read
	// in units of 8 bytes, and nothing is mapped nowhere.
	var b [1]byte
	defer runtime.KeepAlive(p.space)
	if p.maps { // the call takes no lock, so the Go scheduler need not know of it
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(p.fd), uintptr(unsafe.Pointer(&b)), 1)
		return errno != 0 || n != 0
	}
	n, err := unix.Pread(p.fd, b[:], nowhere)
	return err != nil || n != 0
}

// Read fills dst from addr.
func (p *Process) Read(addr uint64, dst []byte) error {
	v := [1]Vec{{addr, dst}}
	return ReadV(p, v[:])
}

// Write copies src to addr.
func (p *Process) Write(addr uint64, src []byte) error {
	v := [1]Vec{{addr, src}}
	return WriteV(p, v[:])
}

// ReadV fills each piece's buffer from its address.
func ReadV[V ~struct {
	Addr uint64
	Buf  []byte
}](p *Process, vecs []V) error {
	if err := transfer(unix.SYS_PROCESS_VM_READV, p.pid, vecs); err != nil {
		return err
	}
	// The number was that of the process during the whole call if it is so now.
	if !p.Alive() {
		return syscall.ESRCH
	}
	return nil
}

// WriteV copies each piece's buffer to its address.
func WriteV[V ~struct {
	Addr uint64
	Buf  []byte
}](p *Process, vecs []V) error {
	// The kernel has no vectored write that names a process by a descriptor. The number could pass
	// to another process only between these two calls.
	if !p.Alive() {
		return syscall.ESRCH
	}
	return transfer(unix.SYS_PROCESS_VM_WRITEV, p.pid, vecs)
}

// MappingAt returns the mapping that holds addr.
func (p *Process) MappingAt(addr uint64) (Mapping, error) {
	found, err := mappingAt(p.pid, addr)
	switch {
	case err != nil:
		return found, err
	case !p.Alive():
		return Mapping{}, syscall.ESRCH
	case found.End == 0:
		return found, syscall.EFAULT
	}
	return found, nil
}

// AddressOf returns where the process has mapped a file that is shared; 0 if it has not.
func (p *Process) AddressOf(inode uint64) uint64 {
	var addr uint64
	mappings(p.pid, func(m Mapping) bool {
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
