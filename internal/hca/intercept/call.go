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

	"github.com/softmkey/softmkey/internal/base/failure"
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

// failWith answers with the errno of an error.
func (c *Call) failWith(err error) { c.Fail(failure.Errno(err, syscall.EIO)) }

// deliver writes b to memory of the caller, and answers with a result.
func (c *Call) deliver(b []byte, to uint64, result int) {
	if c.Write(to, b) != nil {
		c.Fail(unix.EFAULT)
		return
	}
	c.Return(int64(result))
}

// deliverStruct answers a call whose result is a structure.
func deliverStruct[T any](c *Call, v *T, to uint64) {
	c.deliver(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)), to, 0)
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

// finish answers the call with the number of a new descriptor, or with an error.
func (c *Call) finish(fd int, err error) {
	if err != nil {
		c.failWith(err)
	} else {
		c.Return(int64(fd))
	}
}

// dispatch answers one notification, or passes it to a goroutine that does. An ioctl may take long,
// and says so.
func (s *Supervisor) dispatch(c *Call) {
	a := &c.n.Args
	if s.inside.Load() {
		if _, traced := s.traced.Load(c.Thread()); traced {
			c.Continue()
			return
		}
	}
	if s.cfg.Memory != nil {
		s.changes(c)
	}
	switch uint32(c.n.Nr) {
	case unix.SYS_IOCTL:
		s.ioctl(c)
	case unix.SYS_WRITE:
		go s.write(c)
	case unix.SYS_MMAP:
		go s.mmap(c)
	case unix.SYS_SOCKET:
		s.openNetlink(c)
	case unix.SYS_CONNECT:
		go s.connectNetlink(c)
	case unix.SYS_SENDTO, unix.SYS_SENDMSG:
		go s.sendNetlink(c)
	case unix.SYS_RECVFROM, unix.SYS_RECVMSG:
		go s.receiveNetlink(c)
	case unix.SYS_GETSOCKOPT:
		go s.optionNetlink(c)
	case unix.SYS_USERFAULTFD:
		go func() {
			s.waits(c)
			c.Continue()
		}()
	case unix.SYS_DUP:
		go s.duplicate(c, false)
	case unix.SYS_FCNTL:
		go s.duplicate(c, a[1] == unix.F_DUPFD_CLOEXEC)
	case unix.SYS_FSTAT:
		s.statPath(c, int32(a[0]), 0, a[1], unix.AT_EMPTY_PATH)
	case unix.SYS_OPENAT:
		s.openPath(c, int32(a[0]), a[1], int(a[2]))
	case openNr:
		s.openPath(c, unix.AT_FDCWD, a[0], int(a[1]))
	case unix.SYS_OPENAT2:
		var how [8]byte // open_how.flags
		if c.Read(a[2], how[:]) != nil {
			c.Continue()
			return
		}
		s.openPath(c, int32(a[0]), a[1], int(leUint64(how[:])))
	case fstatatNr:
		s.statPath(c, int32(a[0]), a[1], a[2], int(a[3]))
	case statNr:
		s.statPath(c, unix.AT_FDCWD, a[0], a[1], 0)
	case lstatNr:
		s.statPath(c, unix.AT_FDCWD, a[0], a[1], unix.AT_SYMLINK_NOFOLLOW)
	case unix.SYS_STATX:
		s.statxPath(c, int32(a[0]), a[1], int(a[2]), int(a[3]), a[4])
	case unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2:
		s.accessPath(c, int32(a[0]), a[1], uint32(a[2]))
	case accessNr:
		s.accessPath(c, unix.AT_FDCWD, a[0], uint32(a[1]))
	case unix.SYS_READLINKAT:
		s.readlinkPath(c, int32(a[0]), a[1], a[2], a[3])
	case readlinkNr:
		s.readlinkPath(c, unix.AT_FDCWD, a[0], a[1], a[2])
	case unix.SYS_CHDIR:
		go s.chdir(c)
	case unix.SYS_FCHDIR:
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.Thread(), int32(a[0]))); err == nil {
			if _, tree := s.seen(to); tree {
				s.inside.Store(true)
			}
		}
		c.Continue()
	case unix.SYS_GETCWD:
		s.getcwd(c)
	case unix.SYS_STATFS:
		s.statfsPath(c)
	case unix.SYS_FSTATFS:
		s.statfsDescriptor(c)
	case unix.SYS_GETXATTR, unix.SYS_LGETXATTR:
		s.xattrPath(c, a[0], unix.ENODATA)
	case unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR:
		s.xattrPath(c, a[0], 0)
	default:
		c.Continue()
	}
}
