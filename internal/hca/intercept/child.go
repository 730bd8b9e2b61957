//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/operr"
)

// childName is the first argument of the process that installs the filter on
// itself and becomes the program.
const childName = "softmkey-run-child"

// The child's descriptor of the socket to its parent, and what it says there.
const (
	childSocket = 3

	saysListener = 'L' // with the descriptor
	saysRefused  = 'F' // the filter; with the errno
	saysExec     = 'E' // execve failed; with the errno
)

// Child becomes the program if this process was started by [Start], and returns
// otherwise. A command calls it before anything else.
func Child() {
	if len(os.Args) < 3 || os.Args[0] != childName {
		return
	}
	runtime.LockOSThread() // the filter is the thread's, and exec keeps the thread's
	say := func(what byte, errno syscall.Errno) {
		unix.Write(childSocket, []byte{what, byte(errno)})
	}
	unix.CloseOnExec(childSocket)
	fd, errno := install(filter())
	if errno != 0 {
		say(saysRefused, errno)
		os.Exit(126)
	}
	if err := unix.Sendmsg(childSocket, []byte{saysListener, 0}, unix.UnixRights(fd), nil, 0); err != nil {
		os.Exit(126)
	}
	err := syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	errno, _ = err.(syscall.Errno)
	say(saysExec, errno)
	os.Exit(126)
}

// startChild starts the child and returns it with its listener. The calling
// goroutine's thread must live as long as the program: the kernel kills the
// program when the thread that started it ends.
func startChild(cfg *Config) (*os.Process, listener, *os.File, error) {
	const op = "run"
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, nil, operr.New(op, errnoOf(err), "no socket pair: %v", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "child"), os.NewFile(uintptr(pair[1]), "parent")
	defer theirs.Close()
	process, err := os.StartProcess("/proc/self/exe", append([]string{childName, cfg.Path}, cfg.Args...), &os.ProcAttr{
		Dir:   cfg.Dir,
		Env:   cfg.Env,
		Files: []*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr, theirs},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		ours.Close()
		return nil, -1, nil, operr.New(op, errnoOf(err), "starting a process: %v", err)
	}
	theirs.Close()
	what, errno, fd := hear(ours)
	switch {
	case what == saysListener && fd >= 0:
		return process, listener(fd), ours, nil
	case what == saysRefused:
		err = filterError(errno)
	default:
		err = operr.New(op, syscall.ECHILD, "the process that becomes the program ended early")
	}
	ours.Close()
	process.Wait()
	return nil, -1, nil, err
}

// hear reads one message of the child. An end of file is what 0.
func hear(socket *os.File) (what byte, errno syscall.Errno, fd int) {
	buf, oob := make([]byte, 16), make([]byte, 64)
	var n, oobn int
	var err error
	for {
		n, oobn, _, _, err = unix.Recvmsg(int(socket.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n < 2 {
		return 0, 0, -1
	}
	fd = -1
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return buf[0], syscall.Errno(buf[1]), fd
}

// filterError says why the kernel refused the filter.
func filterError(errno syscall.Errno) error {
	const op = "run"
	switch errno {
	case syscall.EBUSY:
		return operr.New(op, errno, "this process is already under a supervisor of system calls (another softmkey run, or a sandbox): only one can serve a process")
	case syscall.EINVAL:
		return operr.New(op, errno, "the kernel lacks seccomp user notifications that signals do not interrupt: Linux 5.19 or newer is needed, this is %s", release())
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS:
		return operr.New(op, errno, "seccomp is forbidden here (%v): a container's profile must allow the system calls seccomp and prctl", errno)
	}
	return operr.New(op, errno, "the kernel refused the seccomp filter: %v", errno)
}

// release returns the kernel's version.
func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// LookPath finds the program as execvp does, and refuses what cannot be started.
func LookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("run: %w", err)
	}
	return path, nil
}

func errnoOf(err error) syscall.Errno {
	for err != nil {
		if errno, ok := err.(syscall.Errno); ok {
			return errno
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			break
		}
		err = u.Unwrap()
	}
	return syscall.EIO
}
