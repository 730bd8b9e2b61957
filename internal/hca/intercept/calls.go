//go:build linux && (amd64 || arm64)

package intercept

import (
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// A handler answers a system call by its result or an error. The error errInKernel lets the kernel
// execute the call. The error errAnswered says that somebody else has answered it, or will.
type handler func(s *Supervisor, c *Call, a *[6]uint64) (int, error)

var (
	errInKernel = errors.New("the kernel executes the call")
	errAnswered = errors.New("the call is answered elsewhere")
)

// A row is a system call of which the filter notifies the supervisor.
type row struct {
	nr    uint32
	where string // the part of the filter that decides; empty: the supervisor is notified always
	// apart: the handler may block for long, so each call runs in its own goroutine. The handler of ioctl decides
	// that for each request.
	apart  bool
	handle handler // nil: the kernel executes the call, whose changes of memory are reported
}

// calls are the system calls in the order in which the filter compares them.
var calls = slices.Concat(pathCalls, archCalls, []row{
	{nr: unix.SYS_CHDIR, apart: true, handle: (*Supervisor).chdir},
	{nr: unix.SYS_FCHDIR, handle: (*Supervisor).fchdir},
	{nr: unix.SYS_GETCWD, handle: (*Supervisor).getcwd},
	{nr: unix.SYS_STATFS, handle: (*Supervisor).statfsPath},
	{nr: unix.SYS_FSTATFS, handle: (*Supervisor).statfsDescriptor},
}, memoryCalls, []row{
	{nr: unix.SYS_IOCTL, where: "ioctl", handle: (*Supervisor).ioctl},
	{nr: unix.SYS_MMAP, where: "mmap", apart: true, handle: (*Supervisor).mmap},
	{nr: unix.SYS_SOCKET, where: "socket", handle: (*Supervisor).openNetlink},
	{nr: unix.SYS_CONNECT, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).connectNetlink)},
	{nr: unix.SYS_SENDTO, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).sendNetlink)},
	{nr: unix.SYS_SENDMSG, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).sendNetlink)},
	{nr: unix.SYS_RECVFROM, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).receiveNetlink)},
	{nr: unix.SYS_RECVMSG, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).receiveNetlink)},
	{nr: unix.SYS_GETSOCKOPT, where: "netlink", apart: true, handle: netlinkHandler((*Supervisor).optionNetlink)},
	{nr: unix.SYS_WRITE, where: "descriptor", apart: true, handle: (*Supervisor).write},
	{nr: unix.SYS_FSTAT, where: "descriptor", handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.statPath(c, int32(a[0]), 0, a[1], unix.AT_EMPTY_PATH)
	}},
	{nr: unix.SYS_DUP, where: "descriptor", apart: true, handle: (*Supervisor).duplicate},
	{nr: unix.SYS_USERFAULTFD, apart: true, handle: func(s *Supervisor, c *Call, _ *[6]uint64) (int, error) {
		s.waits(c)
		return 0, errInKernel
	}},
	{nr: unix.SYS_FCNTL, where: "fcntl", apart: true, handle: (*Supervisor).duplicate},
})

// pathCalls are the system calls that name a file, on all processors.
var pathCalls = []row{
	{nr: unix.SYS_OPENAT, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.openPath(c, int32(a[0]), a[1], int(a[2]))
	}},
	{nr: fstatatNr, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.statPath(c, int32(a[0]), a[1], a[2], int(a[3]))
	}},
	{nr: unix.SYS_OPENAT2, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		var how [8]byte // open_how.flags
		if c.Read(a[2], how[:]) != nil {
			return 0, errInKernel
		}
		return s.openPath(c, int32(a[0]), a[1], int(leUint64(how[:])))
	}},
	{nr: unix.SYS_STATX, handle: (*Supervisor).statxPath},
	{nr: unix.SYS_FACCESSAT, handle: (*Supervisor).faccessat},
	{nr: unix.SYS_FACCESSAT2, handle: (*Supervisor).faccessat},
	{nr: unix.SYS_READLINKAT, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.readlinkPath(c, int32(a[0]), a[1], a[2], a[3])
	}},
	{nr: unix.SYS_GETXATTR, handle: (*Supervisor).getxattr},
	{nr: unix.SYS_LGETXATTR, handle: (*Supervisor).getxattr},
	{nr: unix.SYS_LISTXATTR, handle: (*Supervisor).listxattr},
	{nr: unix.SYS_LLISTXATTR, handle: (*Supervisor).listxattr},
}

var rowOf = func() map[uint32]*row {
	m := map[uint32]*row{}
	for i := range calls {
		m[calls[i].nr] = &calls[i]
	}
	return m
}()

// dispatch answers one notification, or passes it to a goroutine that does.
func (s *Supervisor) dispatch(c *Call) {
	if s.inside.Load() {
		if _, traced := s.traced.Load(c.Thread()); traced {
			c.Continue()
			return
		}
	}
	if s.cfg.Memory != nil {
		s.changes(c)
	}
	switch r := rowOf[uint32(c.n.Nr)]; {
	case r == nil || r.handle == nil:
		c.Continue()
	case r.apart:
		go s.execute(c, r.handle)
	default:
		s.execute(c, r.handle)
	}
}

// execute answers a call by a handler.
func (s *Supervisor) execute(c *Call, handle handler) {
	switch result, err := handle(s, c, &c.n.Args); err {
	case nil:
		c.Return(int64(result))
	case errInKernel:
		c.Continue()
	case errAnswered:
	default:
		c.Fail(failure.Errno(err, syscall.EIO))
	}
}

// apart answers c in a goroutine of its own, because answer may block for long.
func (s *Supervisor) apart(c *Call, answer func() (int, error)) (int, error) {
	go s.execute(c, func(*Supervisor, *Call, *[6]uint64) (int, error) { return answer() })
	return 0, errAnswered
}
