//go:build linux && (amd64 || arm64)

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/procmem"
	"github.com/softmkey/softmkey/operr"
)

// The first arguments of the two processes between the supervisor and the
// program: the guard is the program's parent and ends its whole tree when the
// supervisor dies; its child installs the filter on itself and becomes the
// program.
const (
	guardName = "softmkey-run-guard"
	childName = "softmkey-run-child"
)

// The descriptors of the sockets to the supervisor, and what is said there.
const (
	childSocket = 3
	guardSocket = 4

	saysListener = 'L' // the child: with the descriptor
	saysRefused  = 'F' // the child: the filter; with the errno
	saysExec     = 'E' // the child: execve failed; with the errno
	saysStarted  = 'P' // the guard: the child's process id
	saysEnded    = 'X' // the guard: the program's wait status
)

// Child becomes the guard or the program if this process was started by [Start],
// and returns otherwise. A command calls it before anything else.
func Child() {
	switch {
	case len(os.Args) < 3:
		return
	case os.Args[0] == guardName:
		guard()
	case os.Args[0] != childName:
		return
	}
	runtime.LockOSThread() // the filter is the thread's, and exec keeps the thread's
	say := func(what byte, errno syscall.Errno) {
		message{what, uint32(errno)}.say(childSocket, nil)
	}
	unix.CloseOnExec(childSocket)
	fd, errno := install(filter())
	if errno != 0 {
		say(saysRefused, errno)
		os.Exit(126)
	}
	if (message{what: saysListener}).say(childSocket, unix.UnixRights(fd)) != nil {
		os.Exit(126)
	}
	err := syscall.Exec(os.Args[1], os.Args[2:], os.Environ())
	errno, _ = err.(syscall.Errno)
	say(saysExec, errno)
	os.Exit(126)
}

// guarded is the program with the processes and sockets on the way to it.
type guarded struct {
	guard    *os.Process
	program  int // its process id
	socket   *os.File
	listener listener
}

// startChild starts the guard and the program, which runs on when accept was
// called for its listener. The calling goroutine's thread must live as long as the
// guard: the kernel kills it when the thread that started it ends.
func startChild(cfg *Config, accept func(listener)) (*guarded, error) {
	const op = "run"
	var ours, theirs [2]*os.File
	for i := range ours {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, operr.New(op, errnoOf(err), "no socket pair: %v", err)
		}
		ours[i], theirs[i] = os.NewFile(uintptr(pair[0]), "child"), os.NewFile(uintptr(pair[1]), "parent")
	}
	defer ours[0].Close()
	process, err := os.StartProcess("/proc/self/exe", append([]string{guardName, cfg.Path}, cfg.Args...), &os.ProcAttr{
		Dir:   cfg.Dir,
		Env:   cfg.Env,
		Files: []*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr, theirs[0], theirs[1]},
	})
	theirs[0].Close()
	theirs[1].Close()
	if err != nil {
		ours[1].Close()
		return nil, operr.New(op, errnoOf(err), "starting a process: %v", err)
	}
	g := &guarded{guard: process, socket: ours[1]}
	if err = g.await(cfg, ours[0], accept); err != nil {
		g.socket.Close()
		process.Wait()
		return nil, err
	}
	return g, nil
}

// await waits until the program runs.
func (g *guarded) await(cfg *Config, child *os.File, accept func(listener)) error {
	const op = "run"
	m, _ := hear(g.socket)
	if m.what != saysStarted {
		return operr.New(op, syscall.ECHILD, "the process that starts the program ended early")
	}
	g.program = int(m.value)
	if err := mayRead(g.program); err != nil {
		return err
	}
	m, fd := hear(child)
	switch {
	case m.what == saysListener && fd >= 0:
	case m.what == saysRefused:
		return filterError(syscall.Errno(m.value))
	default:
		return operr.New(op, syscall.ECHILD, "the process that becomes the program ended early")
	}
	g.listener = listener(fd)
	accept(g.listener)
	if m, _ = hear(child); m.what == saysExec { // else an end of file: execve worked
		return operr.New(op, syscall.Errno(m.value), "%s cannot be executed: %v", cfg.Path, syscall.Errno(m.value))
	}
	return nil
}

// message is what the sockets carry: a letter and a number.
type message struct {
	what  byte
	value uint32
}

func (m message) say(socket int, rights []byte) error {
	return unix.Sendmsg(socket, binary.LittleEndian.AppendUint32([]byte{m.what}, m.value), rights, nil, 0)
}

// hear reads one message, with the descriptor that came with it or -1. An end of
// file is what 0.
func hear(socket *os.File) (m message, fd int) {
	buf, oob := make([]byte, 16), make([]byte, 64)
	var n, oobn int
	var err error
	for {
		n, oobn, _, _, err = unix.Recvmsg(int(socket.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	fd = -1
	if err != nil || n < 5 {
		return message{}, fd
	}
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
		}
	}
	return message{buf[0], binary.LittleEndian.Uint32(buf[1:])}, fd
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

// mayRead returns why the kernel does not let this process read the memory of a
// process that it started.
func mayRead(pid int) error {
	var b [1]byte
	err := procmem.Read(pid, 0, b[:]) // nothing is mapped there: EFAULT, if it is permitted
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	const op, need = "run", "the device reads and writes the program's memory with process_vm_readv and process_vm_writev"
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if s := strings.TrimSpace(string(scope)); s > "1" {
		return operr.New(op, errnoOf(err), "%s, which kernel.yama.ptrace_scope=%s forbids: it must be 0 or 1, or run needs CAP_SYS_PTRACE", need, s)
	}
	return operr.New(op, errnoOf(err), "%s, which are forbidden here (%v): a container's profile must allow them", need, err)
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

// errnoOf returns the errno that a program gets for an error.
func errnoOf(err error) syscall.Errno {
	var refused *operr.Error
	if errors.As(err, &refused) {
		return refused.Errno
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
