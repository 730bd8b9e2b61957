//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// A Call is one intercepted system call. The calling thread waits until it is
// answered, once, by Return, Fail or Continue.
type Call struct {
	s        *Supervisor
	n        notification
	reader   *reader // that is in the call; nil: the call has a goroutine of its own
	number   uint64  // of the call, for reader
	process  int     // 0: not looked up yet
	answered atomic.Bool
}

// Thread returns the calling thread's id.
func (c *Call) Thread() int { return int(c.n.PID) }

// Process returns the id of the process that the thread belongs to.
func (c *Call) Process() int {
	if c.process == 0 {
		c.process = c.s.processes.of(c.Thread())
	}
	return c.process
}

// Read copies memory of the caller: all of dst, or EFAULT. A caller that was killed is ESRCH.
func (c *Call) Read(addr uint64, dst []byte) error {
	if err := procmem.ReadThread(c.Thread(), addr, dst); err != nil {
		return err
	}
	// The thread's number may have passed to another one since: the bytes count only if the
	// call still waits.
	if !c.Alive() {
		return unix.ESRCH
	}
	return nil
}

// Write copies to memory of the caller: all of src, or EFAULT. A caller that was killed is ESRCH.
func (c *Call) Write(addr uint64, src []byte) error {
	if !c.Alive() {
		return unix.ESRCH
	}
	return procmem.WriteThread(c.Thread(), addr, src)
}

// Memory opens the memory of the caller's process. A caller that was killed is ESRCH.
func (c *Call) Memory() (*procmem.Process, error) {
	p, err := procmem.OpenThread(c.Process(), c.Thread())
	if err != nil {
		return nil, err
	}
	// While the thread waits, its process is not replaced by another one of the same number.
	if !c.Alive() {
		p.Close()
		return nil, unix.ESRCH
	}
	return p, nil
}

// Return answers with a result.
func (c *Call) Return(value int64) { c.answer(response{ID: c.n.ID, Val: value}) }

// Fail answers with an errno.
func (c *Call) Fail(errno syscall.Errno) { c.answer(response{ID: c.n.ID, Error: -int32(errno)}) }

// deliver writes b to memory of the caller, and returns result as that of the call.
func (c *Call) deliver(b []byte, to uint64, result int) (int, error) {
	if c.Write(to, b) != nil {
		return 0, unix.EFAULT
	}
	return result, nil
}

// deliverStruct is deliver for a call whose result is a structure.
func deliverStruct[T any](c *Call, v *T, to uint64) (int, error) {
	return c.deliver(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)), to, 0)
}

// Continue lets the kernel execute the call.
func (c *Call) Continue() { c.answer(response{ID: c.n.ID, Flags: flagContinue}) }

func (c *Call) answer(r response) {
	if c.answered.CompareAndSwap(false, true) {
		c.s.listener.send(&r) // ENOENT: the caller was killed meanwhile
	}
}

// Alive reports whether the caller still waits.
func (c *Call) Alive() bool { return !c.answered.Load() && c.s.listener.valid(c.n.ID) }

// Inject gives the caller an open description of its own of f, for reading, which exec closes, under
// the lowest free number, which it returns. gone is called when the caller and
// everybody it passed it to have closed it.
func (c *Call) Inject(f *os.File, gone func()) (int, error) {
	t, err := c.s.files.track(f, nil, gone)
	if err != nil {
		return -1, err
	}
	return c.s.place(c, t, -1, unix.O_RDONLY, true)
}

// Give gives the caller a copy of f and returns its number. Calls about the copy go to the kernel.
func (c *Call) Give(f *os.File) (int, error) {
	return c.add(int(f.Fd()), -1, true)
}

// Injected returns the file that a descriptor of the caller is a copy of, made by
// Inject, or nil.
func (c *Call) Injected(fd int) *os.File {
	if ino, ok := inodeAt(c, int32(fd)); ok {
		if t := c.s.files.find(ino); t != nil && t.device == nil {
			return t.d
		}
	}
	return nil
}

// File returns the device file that a descriptor of the caller refers to, or nil.
func (c *Call) File(fd int) File {
	if f := c.s.fileOf(c, int32(fd)); f != nil {
		return f.File
	}
	return nil
}

// FileID returns device and inode of the file that a descriptor of the caller refers
// to.
func (c *Call) FileID(fd int) (dev, ino uint64, ok bool) {
	id, ok := inodeAt(c, int32(fd))
	return id.dev, id.ino, ok
}

// Copy returns a copy of a descriptor of the caller, which has an open description in common
// with it.
func (c *Call) Copy(fd int) (*os.File, error) {
	mine, err := c.copyOf(fd)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(mine), "a program's file"), nil
}

// copyOf is Copy for a number.
func (c *Call) copyOf(fd int) (int, error) {
	process, err := unix.PidfdOpen(c.Process(), 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(process)
	mine, err := unix.PidfdGetfd(process, fd, 0)
	if err != nil {
		return -1, err
	}
	if !c.Alive() { // the number may be another process's
		unix.Close(mine)
		return -1, unix.ESRCH
	}
	return mine, nil
}

// NonBlocking reports whether the descriptor that the call is about has
// O_NONBLOCK.
func (c *Call) NonBlocking() bool {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.Thread(), int32(c.n.Args[0])))
	flags, _ := strconv.ParseUint(field(append([]byte{'\n'}, info...), "flags:"), 8, 64)
	return flags&unix.O_NONBLOCK != 0
}

// add puts descriptor src into the caller, as number at, or the lowest free one
// if at is negative.
func (c *Call) add(src, at int, closeOnExec bool) (int, error) {
	a := addFD{ID: c.n.ID, SrcFD: uint32(src)}
	if at >= 0 {
		a.Flags, a.NewFD = addFDSet, uint32(at)
	}
	if closeOnExec {
		a.NewFDFlags = unix.O_CLOEXEC
	}
	for {
		fd, err := c.s.listener.add(&a)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
