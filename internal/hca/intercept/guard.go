//go:build linux && (amd64 || arm64)

package intercept

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// The guard's arguments: a folder to remove, whether changes of memory are watched, the program's path,
// and from there on the program's arguments.
const (
	guardRemoves = 1
	guardWatches = 2
	guardProgram = 3

	watchesMemory = "memory" // the value of guardWatches if they are
)

// guard starts the program and waits for its end. It is a subreaper: the processes
// that outlive their parents become its children. It ends them when the program has
// ended, and everything when the supervisor has died. Then the socket reads as an end
// of file.
func guard() {
	unix.CloseOnExec(guardSocket)
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	// The terminal's signals must not end the guard. It handles them instead of
	// ignoring them, because the program would inherit ignored signals.
	all := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(sig) {
			signal.Notify(all, sig)
		}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)

	supervisor := os.NewFile(guardSocket, "supervisor")
	started := make(chan *os.Process)
	go func() {
		runtime.LockOSThread()
		started <- startFiltered(supervisor)
		select {} // the program dies with the thread that has started it
	}()
	program := <-started
	cgroup := cgroupOf(os.Getpid())
	if program == nil {
		removeCgroup(cgroup)
		// The supervisor may still be writing to the folder. The guard waits until the other end of
		// the socket is closed: the supervisor closes it when it has read why the program was not
		// started, and the kernel closes it if the supervisor is killed.
		hear(supervisor)
		removeFolder()
		os.Exit(126)
	}
	if (message{saysStarted, uint32(program.Pid)}).say(guardSocket, nil) != nil {
		program.Kill()
	}
	heard := make(chan message)
	go func() {
		m, _ := hear(supervisor) // the zero message when the supervisor has died
		heard <- m
	}()
	ended := make(chan syscall.WaitStatus)
	go func() {
		state, err := program.Wait()
		status := syscall.WaitStatus(syscall.SIGKILL)
		if err == nil {
			status = state.Sys().(syscall.WaitStatus)
		}
		ended <- status
	}()
	for {
		select {
		case <-all:
		case <-children:
			reap(program.Pid)
		case <-heard:
			endOthers(0, cgroup)
			removeFolder()
			os.Exit(1)
		case status := <-ended:
			endOthers(grace, cgroup)
			// A supervisor that lives removes the folder itself, and answers saysHeard. The guard
			// waits for this answer, because a message can also be sent to a supervisor that was
			// killed: while the kernel closes its descriptors, it may close the listener before the
			// socket. The system calls of the program fail without the listener, and the program may
			// end before the socket is closed.
			if (message{saysEnded, uint32(status)}).say(guardSocket, nil) != nil || (<-heard).what != saysHeard {
				removeFolder()
			}
			os.Exit(0)
		}
	}
}

// removeFolder removes the folder that the supervisor can no longer remove.
func removeFolder() {
	if folder := os.Args[guardRemoves]; folder != "" {
		os.RemoveAll(folder)
	}
}

// shell runs scripts that do not name their interpreter.
const shell = "/bin/sh"

// startFiltered puts the filter on the calling thread and starts the program, nil if that is not
// possible: a process inherits the filter of the thread that forks it. The thread does nothing
// else, since its own calls are notified too.
func startFiltered(supervisor *os.File) *os.Process {
	fd, errno := install(filter(os.Args[guardWatches] == watchesMemory))
	if errno != 0 {
		message{saysRefused, uint32(errno)}.say(guardSocket, nil)
		return nil
	}
	if (message{what: saysListener}).say(guardSocket, unix.UnixRights(fd)) != nil {
		return nil
	}
	unix.Close(fd)
	if m, _ := hear(supervisor); m.what != saysGo {
		return nil
	}
	setSlice(0, 0) // the program inherits it
	giveWay()
	attr := &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	}
	path, args := os.Args[guardProgram], os.Args[guardProgram+1:]
	var program *os.Process
	err := error(syscall.EBUSY)
	if cgroup := makeCgroup(cgroupOf(os.Getpid())); cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cgroup.Fd())
		program, err = os.StartProcess(path, args, attr)
		attr.Sys.UseCgroupFD = false
		cgroup.Close()
	}
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		// There is no control group, or no process may be put into it.
		program, err = os.StartProcess(path, args, attr)
	}
	if errors.Is(err, syscall.ENOEXEC) && isScript(path) { // as execvp does
		program, err = os.StartProcess(shell, append([]string{shell, path}, args[1:]...), attr)
	}
	if err != nil {
		message{saysExec, uint32(failure.Errno(err, syscall.EIO))}.say(guardSocket, nil)
		return nil
	}
	return program
}

// reap waits for the orphans that have ended, but not for the program itself.
func reap(program int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		pid := siginfoPID(&info)
		if err != nil || pid == 0 || pid == program {
			return
		}
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}
