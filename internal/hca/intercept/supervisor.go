//go:build linux && (amd64 || arm64)

package intercept

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// Config says which program runs and which files the supervisor answers for.
type Config struct {
	Path                  string   // the program, as [LookPath] found it
	Args                  []string // its arguments, from its name on
	Env                   []string
	Dir                   string
	Stdin, Stdout, Stderr *os.File

	// Root is a folder whose tree stands for the system's: files at or below one
	// of the paths in Owned come from there.
	Root  string
	Owned []string
	// Listed are paths of folders whose list of names comes from the tree. Paths below
	// them are the system's, unless they are owned.
	Listed []string
	// Prepare is called once, before the program starts and while the process that starts
	// it gets ready; nil: there is nothing to prepare. An error ends Start.
	Prepare func() error
	// Refresh is called before a program opens a file or a folder of the tree, and may
	// write files below Root anew; nil: the files do not change.
	Refresh func(path string)
	// Reap is set if all children of this process are the program's: it becomes a subreaper and
	// ends what the program has left running even if the program has killed the guard.
	Reap bool
	// Remove is a folder that is removed if the supervisor is killed; empty: none.
	Remove string
	// Node returns the device file with a path below Owned, or nil. It is called at any
	// time, and may return more files later.
	Node func(path string) Node
	// Netlink returns the datagrams that answer a request of NETLINK_RDMA from the socket with a
	// port number. It is called by several goroutines; nil: programs see a kernel without that
	// protocol.
	Netlink func(request []byte, port uint32) [][]byte
	// Memory is called before a program changes mappings of its memory; nil: changes are not watched,
	// which makes these calls fast.
	Memory func(procmem.Change)
	// Refused is called with the reason for which a process got no descriptor of a device; nil: the
	// reasons are dropped.
	Refused func(pid int, what string, err error)
	// Warn is called, once, when a process cannot be served; nil: no warning.
	Warn func(error)
}

// A Supervisor serves one program and everything it starts.
type Supervisor struct {
	cfg       Config
	root      int // descriptor of cfg.Root
	listener  listener
	guarded   *guarded
	stop      *os.File // readable when the readers are to end
	stopped   *os.File
	leader    leader
	files     registry
	waiting   deferred
	kernel    kernelSocket
	nextFD    atomic.Uint32
	processes processes
	names     []string    // of the files that the supervisor answers for
	traced    sync.Map    // the threads whose calls the kernel executes, because this process lets them make them
	inside    atomic.Bool // a program has a folder of the tree open, or as its current one
	slow      struct {    // processes whose memory may wait
		any  atomic.Bool
		pids map[int]bool // guarded by files.mu
	}
	warned sync.Once
	exited chan struct{} // closed when the program has ended
	status syscall.WaitStatus
}

// Start starts the program.
func Start(cfg Config) (*Supervisor, error) {
	const op = "run"
	var limit unix.Rlimit
	if least := fdRanges[0].devices().first; unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Max <= uint64(least) {
		return nil, failure.New(op, unix.EMFILE, "the hard limit of open files is %d: devices have descriptors from %d on (ulimit -Hn)", limit.Max, least)
	}
	root, err := unix.Open(cfg.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "the tree %s: %v", cfg.Root, err)
	}
	s := &Supervisor{cfg: cfg, root: root, names: namesOf(cfg.Owned, cfg.Listed), exited: make(chan struct{}), waiting: newDeferred()}
	if err := s.files.open(); err != nil {
		unix.Close(root)
		return nil, err
	}
	if s.stopped, s.stop, err = os.Pipe(); err != nil {
		s.files.close()
		unix.Close(root)
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "no pipe: %v", err)
	}

	s.kernel.open()
	started := make(chan error)
	go s.own(started)
	if err := <-started; err != nil {
		s.shut()
		return nil, err
	}
	return s, nil
}

// own starts the program and waits for its end. Its thread is locked: the guard
// dies with it.
func (s *Supervisor) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.cfg.Reap {
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	g, err := startChild(&s.cfg, s.serve)
	if g == nil {
		started <- err
		return
	}
	ended := false
	if err == nil {
		s.guarded = g
		started <- nil
		m, _ := hear(g.socket)
		ended = m.what == saysEnded
		s.status = syscall.WaitStatus(syscall.SIGKILL) // if the guard was killed, the program dies with it
		if ended {
			s.status = syscall.WaitStatus(m.value)
			message{what: saysHeard}.say(int(g.socket.Fd()), nil)
		}
	}
	g.socket.Close()
	g.guard.Wait()
	if cgroup := cgroupOf(g.guard.Pid); s.cfg.Reap {
		endOthers(0, cgroup)
	} else if !ended {
		killCgroup(cgroup)
		removeCgroup(cgroup)
	}
	if err != nil {
		started <- err
		return
	}
	close(s.exited)
}

// serve begins to answer notifications.
func (s *Supervisor) serve(l listener) {
	s.listener = l
	s.lead()
	go s.files.watch()
	go s.waiting.watch()
}

// Signal sends a signal to the program.
func (s *Supervisor) Signal(sig syscall.Signal) error { return syscall.Kill(s.guarded.program, sig) }

// Pid returns the program's process id.
func (s *Supervisor) Pid() int { return s.guarded.program }

// Wait waits until the program has ended and its files are released, and returns
// how it ended.
func (s *Supervisor) Wait() syscall.WaitStatus {
	<-s.exited
	s.shut()
	return s.status
}

// shut ends the readers and releases the files that programs left open.
func (s *Supervisor) shut() {
	s.stop.Close() // readable as an end of file, by every reader
	s.waiting.close()
	s.leader.ended.Wait()
	s.files.close()
	s.kernel.close()
	if s.listener > 0 {
		unix.Close(int(s.listener))
	}
	s.stopped.Close()
	unix.Close(s.root)
}

// owned reports whether the tree at the root stands for a cleaned absolute path.
func (s *Supervisor) owned(path string) bool {
	return slices.Contains(s.cfg.Listed, path) || slices.ContainsFunc(s.cfg.Owned, func(o string) bool {
		below, ok := strings.CutPrefix(path, o)
		return ok && (below == "" || below[0] == '/')
	})
}

// clean returns an absolute path, cleaned, if it can be one of the supervisor's: below /sys,
// /dev or /proc. Of others it returns the empty path.
func clean(path string) string {
	if !strings.HasPrefix(path, "/") {
		return ""
	}
	if strings.Contains(path, "//") || strings.Contains(path, "/.") || len(path) > 1 && path[len(path)-1] == '/' {
		path = filepath.Clean(path)
	}
	for _, top := range []string{"/sys/", "/dev/", "/proc/"} {
		if strings.HasPrefix(path, top) {
			return path
		}
	}
	return ""
}
