//go:build linux && (amd64 || arm64)

package intercept

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The structures and requests of <linux/seccomp.h>.
type notification struct {
	ID    uint64
	PID   uint32 // the thread
	Flags uint32
	Nr    int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

type response struct {
	ID    uint64
	Val   int64
	Error int32
	Flags uint32
}

type addFD struct {
	ID         uint64
	Flags      uint32
	SrcFD      uint32
	NewFD      uint32
	NewFDFlags uint32
}

const (
	notifRecv    = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifSend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	notifIDValid = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	notifAddFD   = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
	notifSetFlag = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS

	flagContinue  = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
	addFDSet      = 1 // SECCOMP_ADDFD_FLAG_SETFD
	addFDSend     = 2 // SECCOMP_ADDFD_FLAG_SEND
	setModeFilter = 1 // SECCOMP_SET_MODE_FILTER
	syncWakeUp    = 1 // SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
	newListener   = 1 << 3
	waitKillable  = 1 << 5
	filterFlags   = newListener | waitKillable
)

// listener is the supervisor's end of a seccomp filter.
type listener int

func (l listener) ioctl(request uintptr, arg unsafe.Pointer) (int, syscall.Errno) {
	n, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(l), request, uintptr(arg))
	return int(n), errno
}

// wakeHere asks the kernel to wake the supervisor on the processor of the calling program,
// which waits anyway. Kernels before 6.6 refuse that.
func (l listener) wakeHere() {
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, uintptr(l), notifSetFlag, syncWakeUp)
}

// receive waits for the next notification.
func (l listener) receive(n *notification) syscall.Errno {
	*n = notification{} // the kernel refuses a structure that is not zero
	_, errno := l.ioctl(notifRecv, unsafe.Pointer(n))
	return errno
}

func (l listener) send(r *response) syscall.Errno {
	_, errno := l.ioctl(notifSend, unsafe.Pointer(r))
	return errno
}

// valid reports whether the call still waits: its thread is alive.
func (l listener) valid(id uint64) bool {
	_, errno := l.ioctl(notifIDValid, unsafe.Pointer(&id))
	return errno == 0
}

// add puts a descriptor into the calling process and returns its number there.
func (l listener) add(a *addFD) (int, error) {
	fd, errno := l.ioctl(notifAddFD, unsafe.Pointer(a))
	if errno != 0 {
		return -1, errno
	}
	return fd, nil
}

// install puts the filter on the calling thread and returns the listener.
func install(code []unix.SockFilter) (int, syscall.Errno) {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return -1, errno
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	fd, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, setModeFilter, filterFlags, uintptr(unsafe.Pointer(&prog)))
	return int(fd), errno
}
