//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/operr"
)

// Config says which program runs and which files the supervisor answers for.
type Config struct {
	Path                  string   // the program, as [LookPath] found it
	Args                  []string // its arguments, from its name on
	Env                   []string
	Dir                   string
	Stdin, Stdout, Stderr *os.File

	// Root is a folder whose tree stands for the system's: what is at or below
	// one of Owned comes from there.
	Root  string
	Owned []string
	// Nodes are the device files, by their paths, which lie below Owned.
	Nodes map[string]Node
}

// A Supervisor serves one program and everything it starts.
type Supervisor struct {
	cfg      Config
	root     int // descriptor of cfg.Root
	listener listener
	process  *os.Process
	stop     *os.File // readable when the readers are to end
	stopped  *os.File
	readers  sync.WaitGroup
	files    registry
	waiting  deferred
	nextFD   atomic.Uint32
	exited   chan struct{} // closed when the program has ended
	state    *os.ProcessState
}

// Start starts the program.
func Start(cfg Config) (*Supervisor, error) {
	const op = "run"
	root, err := unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, operr.New(op, errnoOf(err), "the tree %s: %v", cfg.Root, err)
	}
	s := &Supervisor{cfg: cfg, root: root, exited: make(chan struct{}), waiting: newDeferred()}
	if err := s.files.open(); err != nil {
		unix.Close(root)
		return nil, err
	}
	if s.stopped, s.stop, err = os.Pipe(); err != nil {
		s.files.close()
		unix.Close(root)
		return nil, operr.New(op, errnoOf(err), "no pipe: %v", err)
	}

	started := make(chan error)
	go s.own(started)
	if err := <-started; err != nil {
		s.shut()
		return nil, err
	}
	return s, nil
}

// own starts the program, waits for its end and reaps what it leaves behind. Its
// thread is locked: the program dies with it.
func (s *Supervisor) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Orphans of the program become children of this process, which ends them.
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)

	process, l, socket, err := startChild(&s.cfg)
	if err != nil {
		started <- err
		return
	}
	s.process, s.listener = process, l
	s.readers.Add(1)
	go s.read()
	go s.files.watch()
	go s.waiting.watch()
	what, errno, _ := hear(socket) // an end of file: execve worked
	socket.Close()
	if what == saysExec {
		process.Wait()
		started <- operr.New("run", errno, "%s cannot be executed: %v", s.cfg.Path, errno)
		return
	}
	started <- nil

	ended := make(chan struct{})
	go func() {
		s.state, _ = process.Wait()
		close(ended)
	}()
	for {
		select {
		case <-children:
			reap(process.Pid)
		case <-ended:
			s.endOthers()
			close(s.exited)
			return
		}
	}
}

// reap collects the orphans that have ended, but not the program itself.
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

// lastWords is the time between the signal that asks what the program left
// behind to end and the one that ends it.
const lastWords = 2 * time.Second

// endOthers ends the processes that outlive the program: without a supervisor
// their next open would fail.
func (s *Supervisor) endOthers() {
	deadline := time.Now().Add(lastWords)
	sig := syscall.SIGTERM
	for {
		left := descendants(os.Getpid())
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			syscall.Kill(pid, sig)
		}
		until := time.Now().Add(20 * time.Millisecond)
		for time.Now().Before(until) {
			reap(0)
			if len(descendants(os.Getpid())) == 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
		if time.Now().After(deadline) {
			sig = syscall.SIGKILL
		}
	}
}

// Signal sends a signal to the program.
func (s *Supervisor) Signal(sig os.Signal) error { return s.process.Signal(sig) }

// Pid returns the program's process id.
func (s *Supervisor) Pid() int { return s.process.Pid }

// Wait waits until the program has ended and its files are released, and returns
// how it ended.
func (s *Supervisor) Wait() *os.ProcessState {
	<-s.exited
	s.shut()
	return s.state
}

// shut ends the readers and releases what programs left open.
func (s *Supervisor) shut() {
	s.stop.Close() // readable as an end of file, by every reader
	s.waiting.close()
	s.readers.Wait()
	s.files.close()
	if s.listener > 0 {
		unix.Close(int(s.listener))
	}
	s.stopped.Close()
	unix.Close(s.root)
}

// read takes notifications until the supervisor stops or nobody is left who can
// make one. Calls that name a file are answered at once; a call on a device has
// a goroutine of its own, since it may take long.
func (s *Supervisor) read() {
	defer s.readers.Done()
	poll := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}, {Fd: int32(s.stopped.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			return
		}
		if poll[1].Revents != 0 || poll[0].Revents&unix.POLLHUP != 0 {
			return
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			continue
		}
		c := &Call{s: s}
		switch s.listener.receive(&c.n) {
		case 0:
			s.dispatch(c)
		case unix.EINTR, unix.ENOENT: // the caller died meanwhile
		default:
			return
		}
	}
}

// owned returns the path below the root that stands for a cleaned absolute path,
// and whether there is one.
func (s *Supervisor) owned(path string) bool {
	for _, o := range s.cfg.Owned {
		if len(path) >= len(o) && path[:len(o)] == o && (len(path) == len(o) || path[len(o)] == '/') {
			return true
		}
	}
	return false
}

// clean returns an absolute path of the two trees that the supervisor may own,
// cleaned, and whether it is one.
func clean(path string) (string, bool) {
	if path == "" || path[0] != '/' {
		return "", false
	}
	path = filepath.Clean(path)
	if len(path) < 5 || path[:5] != "/sys/" && path[:5] != "/dev/" {
		return "", false
	}
	return path, true
}
