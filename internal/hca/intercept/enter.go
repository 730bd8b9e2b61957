//go:build linux && (amd64 || arm64)

package intercept

import (
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// enter answers chdir: the folder that fd refers to becomes the current one of the caller's process.
func (c *Call) enter(fd int) error {
	return c.with(fd, func(t *tracee, folder int) int64 { return t.call(unix.SYS_FCHDIR, uint64(folder)) })
}

// openLink answers an open, with O_PATH and O_NOFOLLOW, of a symbolic link in the folder that fd refers
// to. Its name is at an address of the caller's. The kernel lets no process give such a descriptor to
// another one.
func (c *Call) openLink(fd int, name uint64, flags int) error {
	return c.with(fd, func(t *tracee, folder int) int64 {
		return t.call(unix.SYS_OPENAT, uint64(folder), name, uint64(flags))
	})
}

// with answers the call with the result of other system calls, which the caller's thread executes with a
// descriptor of the folder that fd refers to. A notification can neither change the arguments of a call
// nor the current folder of another process, so that this process traces the thread for a moment
// (ptrace). An error means that the call is not answered, because another process traces the thread, or
// the system forbids tracing.
func (c *Call) with(fd int, execute func(t *tracee, folder int) int64) error {
	// ptrace accepts requests only from the thread that attached.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const op = "trace"
	thread := c.Thread()
	number, err := c.add(fd, -1, true)
	if err != nil {
		return failure.New(op, failure.Errno(err, unix.EIO), "no descriptor for the folder: %v", err)
	}
	if err := unix.PtraceSeize(thread); err != nil {
		return failure.New(op, unix.ENOENT, "thread %d cannot be traced, as another process traces it, or the system forbids it: %v", thread, err)
	}
	t := tracee{thread: thread}
	defer t.detach()
	c.s.traced.Store(thread, nil)
	defer c.s.traced.Delete(thread) // before the thread goes on
	if err := unix.PtraceInterrupt(thread); err != nil {
		return failure.New(op, failure.Errno(err, unix.EIO), "%v", err)
	}
	c.Return(0) // the thread stops before it leaves the kernel
	if t.await() != nil {
		return nil // it was killed
	}
	if t.before.get(thread) != nil {
		return nil
	}
	result := execute(&t, number)
	t.call(unix.SYS_CLOSE, uint64(number))
	t.before.setResult(result)
	t.before.set(thread)
	return nil
}

// tracee is a thread of a program that this process traces with ptrace.
type tracee struct {
	thread  int
	before  registers        // the thread's registers after the system call that is being answered
	signals []syscall.Signal // signals that arrived while it was traced; detach delivers them
}

// await waits until the thread stops.
func (t *tracee) await() error {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(t.thread, &status, unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case !status.Stopped():
			return unix.ESRCH
		case status.StopSignal() == syscall.SIGTRAP || status>>16 == unix.PTRACE_EVENT_STOP:
			return nil
		}
		t.signals = append(t.signals, status.StopSignal())
		if err := unix.PtraceSingleStep(t.thread); err != nil {
			return err
		}
	}
}

// call makes the thread execute a system call, and returns the result. It reuses the system-call instruction of
// the call that the thread returns from.
func (t *tracee) call(number int, args ...uint64) int64 {
	at := t.before
	at.setCall(number, [3]uint64(append(args, 0, 0)[:3]))
	if at.set(t.thread) != nil || unix.PtraceSingleStep(t.thread) != nil || t.await() != nil || at.get(t.thread) != nil {
		return -int64(unix.ESRCH)
	}
	return at.result()
}

// detach lets the thread go on, with the signals that arrived meanwhile.
func (t *tracee) detach() {
	unix.PtraceDetach(t.thread)
	for _, s := range t.signals {
		unix.Tgkill(processOf(t.thread), t.thread, s)
	}
}
