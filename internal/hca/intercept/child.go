//go:build linux && (amd64 || arm64)

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// guardName is the first argument of the process between the supervisor and the
// program: the guard starts the program under the filter, is its parent, and ends
// its whole tree when the supervisor dies.
const guardName = "softmkey-run-guard"

// guardSocket is the guard's descriptor of its socket to the supervisor. The messages on it
// are a letter and a number each.
const (
	guardSocket = 3

	saysListener = 'L' // the filter is installed, its descriptor is attached, and the guard waits for saysGo
	saysRefused  = 'F' // the kernel refused the filter; the number is the errno
	saysExec     = 'E' // execve failed; the number is the errno
	saysStarted  = 'P' // the number is the program's process id
	saysEnded    = 'X' // the number is the program's wait status

	saysGo    = 'G' // from the supervisor: start the program
	saysHeard = 'H' // from the supervisor: it has heard that the program ended, and lives
)

// Child becomes the guard if this process was started by [Start], and returns
// otherwise. A command calls it before anything else.
func Child() {
	if len(os.Args) > guardProgram && os.Args[0] == guardName {
		guard()
	}
}

// guarded is the program with the processes and sockets on the way to it.
type guarded struct {
	guard    *os.Process
	program  int      // its process id
	socket   *os.File // to the guard
	listener listener
}

// startChild starts the guard and, when cfg.Prepare has returned and accept was called for
// the listener, the program. It returns the guard beside an error if the guard was started: the
// program may run even so, if the guard was killed before it said so. The calling goroutine's
// thread must live as long as the guard: the kernel kills it when the thread that started it ends.
func startChild(cfg *Config, accept func(listener)) (*guarded, error) {
	const op = "run"
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "no socket pair: %v", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "guard"), os.NewFile(uintptr(pair[1]), "supervisor")
	watches := ""
	if cfg.Memory != nil {
		watches = watchesMemory
	}
	process, err := os.StartProcess("/proc/self/exe", append([]string{guardName, cfg.Remove, watches, cfg.Path}, cfg.Args...), &os.ProcAttr{
		Dir:   cfg.Dir,
		Env:   cfg.Env,
		Files: []*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr, theirs},
	})
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, notStarted(err)
	}
	g := &guarded{guard: process, socket: ours}
	if cfg.Prepare != nil {
		err = cfg.Prepare()
	}
	if err == nil {
		err = g.await(cfg, accept)
	}
	return g, err
}

// await waits until the program runs.
func (g *guarded) await(cfg *Config, accept func(listener)) error {
	const op = "run"
	early := failure.New(op, syscall.ECHILD, "the process that starts the program ended early")
	m, fd := hear(g.socket)
	switch {
	case m.what == saysListener && fd >= 0:
	case m.what == saysRefused:
		return filterError(syscall.Errno(m.value))
	default:
		return early
	}
	if err := mayRead(g.guard.Pid); err != nil {
		unix.Close(fd)
		return err
	}
	g.listener = listener(fd)
	accept(g.listener)
	if (message{what: saysGo}).say(int(g.socket.Fd()), nil) != nil {
		return early
	}
	switch m, _ = hear(g.socket); m.what {
	case saysStarted:
		g.program = int(m.value)
		return nil
	case saysExec:
		return execError(cfg.Path, syscall.Errno(m.value))
	}
	return early
}

// message is a message on the socket: a letter and a number.
type message struct {
	what  byte
	value uint32
}

func (m message) say(socket int, rights []byte) error {
	return unix.Sendmsg(socket, binary.LittleEndian.AppendUint32([]byte{m.what}, m.value), rights, nil, 0)
}

// hear reads one message, with the descriptor that came with it or -1. At the end
// of the file it returns the zero message.
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
	if fds, err := unixsocket.Descriptors(oob[:oobn]); err == nil && len(fds) == 1 {
		fd = fds[0]
	}
	return message{buf[0], binary.LittleEndian.Uint32(buf[1:])}, fd
}

// notStarted says why this process could not be started once more.
func notStarted(err error) error {
	const op = "run"
	switch errno := failure.Errno(err, syscall.EIO); errno {
	case syscall.ENOENT:
		return failure.New(op, errno, "/proc is not mounted here: run starts itself again as /proc/self/exe, and finds in /proc what programs have open and mapped")
	case syscall.ENOEXEC:
		return failure.New(op, errno, "this program is not one of the kernel's: %s", emulated)
	default:
		return failure.New(op, errno, "starting a process: %v", err)
	}
}

// emulated explains errors of an emulator of user programs, which has none of the system calls.
const emulated = "an emulator (qemu-user) executes it, which intercepts no system calls; run it on the machine or in a full system emulation"

// filterError says why the kernel refused the filter.
func filterError(errno syscall.Errno) error {
	const op = "run"
	switch errno {
	case syscall.EBUSY:
		return failure.New(op, errno, "this process is already under a supervisor of system calls (another softmkey run, or a sandbox): only one can serve a process")
	case syscall.EINVAL:
		const lacks = "the kernel lacks seccomp user notifications that signals do not interrupt: Linux 5.19 or newer is needed, this is"
		if r := release(); newKernel(r) {
			return failure.New(op, errno, "%s %s, and perhaps %s", lacks, r, emulated)
		}
		return failure.New(op, errno, "%s %s", lacks, release())
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS:
		return failure.New(op, errno, "seccomp is forbidden here (%v): a container's profile must allow the system calls seccomp and prctl", errno)
	}
	return failure.New(op, errno, "the kernel refused the seccomp filter: %v", errno)
}

// mayRead returns why the kernel does not let this process read the memory of a
// process that it started.
func mayRead(pid int) error {
	var b [1]byte
	err := procmem.ReadThread(pid, 0, b[:]) // nothing is mapped there: EFAULT, if it is permitted
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.ENOSYS) {
		return nil
	}
	const op, need = "run", "the device reads and writes the program's memory with process_vm_readv and process_vm_writev"
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if s := strings.TrimSpace(string(scope)); s > "1" {
		return failure.New(op, failure.Errno(err, syscall.EIO), "%s, which kernel.yama.ptrace_scope=%s forbids: it must be 0 or 1, or run needs CAP_SYS_PTRACE", need, s)
	}
	if errors.Is(err, syscall.ENOSYS) {
		return failure.New(op, syscall.ENOSYS, "%s, which do not exist here: %s", need, emulated)
	}
	return failure.New(op, failure.Errno(err, syscall.EIO), "%s, which are forbidden here (%v): a container's profile must allow them", need, err)
}

// newKernel reports whether a release is that of a kernel which has all that run needs, Linux 5.19.
func newKernel(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major > 5 || major == 5 && minor >= 19)
}

// release returns the kernel's version.
func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}
