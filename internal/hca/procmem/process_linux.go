package procmem

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
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
	list  *os.File // PID/maps, which keeps referring to the address space too

	listOnly bool // for tests: the kernel has no query of single mappings

	// other is a thread by whose number the memory is addressed, nil for the first thread of the
	// process. When the first thread has ended and others live, the kernel finds no memory under the
	// number of the process.
	other atomic.Pointer[thread]
}

// thread is a thread of a process.
type thread struct {
	id int
	// file is a file of the thread in /proc. It cannot be read once the thread has ended, even
	// if another thread has got the number.
	file *os.File
	fd   int // of file
}

// lives reports whether the thread still has its number.
func (t *thread) lives() bool {
	var b [1]byte
	n, err := unix.Pread(t.fd, b[:], 0)
	runtime.KeepAlive(t.file)
	return err == nil && n == 1
}

// Open opens the memory of the process with a number. After Open has returned, the caller checks that the process it
// means still has the number.
func Open(pid int) (*Process, error) { return OpenThread(pid, pid) }

// OpenThread is Open with the number of a thread of the process. The first thread, which has the
// process's number, may have ended.
func OpenThread(pid, thread int) (*Process, error) {
	// PID/mem takes the rights that transfers take; PID/pagemap takes less.
	return open(pid, thread, "mem", pageMaps)
}

const pageMaps = "pagemap"

// open is Open with the names of the files that tell whether the address space exists, of which the last one
// that the kernel has is kept. The first one must exist.
func open(pid, thread int, names ...string) (*Process, error) {
	list, err := os.Open(fmt.Sprintf("/proc/%d/maps", thread))
	if err != nil {
		return nil, err
	}
	fd, maps := -1, false
	for _, name := range names {
		next, err := unix.Open(fmt.Sprintf("/proc/%d/%s", thread, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			if fd >= 0 {
				unix.Close(fd)
			}
			fd, maps = next, name == pageMaps
		case fd < 0:
			list.Close()
			return nil, err
		}
	}
	return &Process{pid: pid, space: os.NewFile(uintptr(fd), "address space"), fd: fd, maps: maps, list: list}, nil
}

// Close frees the descriptors. No method may be called afterwards. The garbage collector closes a
// Process that is not referred to any more.
func (p *Process) Close() {
	p.space.Close()
	p.list.Close()
	if t := p.other.Load(); t != nil {
		t.file.Close()
	}
}

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
func (p *Process) Read(addr uint64, dst []byte) error { return p.ReadV([]Vec{{Addr: addr, Buf: dst}}) }

// Write copies src to addr.
func (p *Process) Write(addr uint64, src []byte) error {
	return p.WriteV([]Vec{{Addr: addr, Buf: src}})
}

// ReadV fills each piece's buffer from its address.
func (p *Process) ReadV(vecs []Vec) error { return p.transfer(unix.SYS_PROCESS_VM_READV, vecs) }

// WriteV copies each piece's buffer to its address.
func (p *Process) WriteV(vecs []Vec) error { return p.transfer(unix.SYS_PROCESS_VM_WRITEV, vecs) }

func (p *Process) transfer(trap uintptr, vecs []Vec) error {
	write := trap == unix.SYS_PROCESS_VM_WRITEV
	for {
		// The kernel has no vectored write that names a process by a descriptor. The number could pass
		// to another process only between this check and the write.
		if write && !p.Alive() {
			return syscall.ESRCH
		}
		t := p.other.Load()
		if t != nil && !t.lives() {
			if !p.nextThread(t) {
				return syscall.ESRCH
			}
			continue
		}
		err := transfer(trap, p.number(t), vecs)
		switch {
		case err == syscall.ESRCH && p.nextThread(t):
			continue
		case err != nil || write:
			return err
		case t != nil && !t.lives():
			continue
		case !p.Alive(): // the number was that of the process during the whole call if it is so now
			return syscall.ESRCH
		}
		return nil
	}
}

// number returns the number by which the memory is addressed.
func (p *Process) number(t *thread) int {
	if t == nil {
		return p.pid
	}
	return t.id
}

// nextThread looks for a thread with the address space after the thread that had it has ended (nil:
// the first one), and reports whether there is one.
func (p *Process) nextThread(ended *thread) bool {
	if !p.Alive() {
		return false
	}
	if p.other.Load() != ended {
		return true // another goroutine has found one
	}
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
	for _, task := range tasks {
		id, err := strconv.Atoi(task.Name())
		if err != nil || ended == nil && id == p.pid {
			continue
		}
		file, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/comm", p.pid, id))
		if err != nil {
			continue
		}
		t := &thread{id: id, file: file, fd: int(file.Fd())}
		// Nothing is mapped at address 0: EFAULT, if the thread has an address space.
		var b [1]byte
		if err := ReadThread(id, 0, b[:]); err != nil && err != syscall.EFAULT || !t.lives() {
			file.Close()
			continue
		}
		if !p.other.CompareAndSwap(ended, t) {
			file.Close()
		}
		return true
	}
	return false
}
