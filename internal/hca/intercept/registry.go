//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// inode identifies a file in every process.
type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

// withFD calls use with the descriptor of a file that another goroutine may close: the process
// that maps a device's queue may be killed meanwhile. It returns EBADF if the file is closed.
func withFD(d *os.File, use func(fd int) error) error {
	raw, err := d.SyscallConn()
	if err != nil {
		return unix.EBADF
	}
	var used error
	if raw.Control(func(fd uintptr) { used = use(int(fd)) }) != nil {
		return unix.EBADF
	}
	return used
}

// tracked is a file that the supervisor shares with programs. A copy is an open file description of it in programs, which
// ends when every descriptor and mapping of it is closed. The registry finds the end of the last copy: inotify reports
// each copy that is opened or closed, without saying whose, and /proc says which processes hold the file.
type tracked struct {
	d    *os.File // the supervisor's descriptor
	ino  inode
	file *openFile // the open device that the file is part of; nil: none
	gone func()    // called after the last copy, if file is nil

	// registry.mu guards the following fields.
	watch    int32 // inotify's number of the file
	held     int   // copies given and not yet reported as closed
	given    int   // copies that the supervisor has ever opened for programs
	opens    int   // opens that inotify has ever reported
	giving   int   // copies that are open here and not yet in their program, so that /proc does not show them
	reopened bool  // opens > given: a program has opened the file through /proc/PID/fd, so that held is too low
	checking bool  // a goroutine of closedCopy calls verify
	recheck  bool  // a copy was closed while checking, so that verify must be called once more
}

// registry holds the tracked files by their inodes.
type registry struct {
	notify *os.File      // inotify; nil: the user has no instance left, and /proc is read instead
	ended  chan struct{} // closed by close

	mu      sync.Mutex
	byInode map[inode]*tracked
	byWatch map[int32]*tracked
	owners  map[int]*os.File // pidfds of the processes that opened a device
	closed  bool
	ending  sync.WaitGroup
}

func (r *registry) open() error {
	r.ended = make(chan struct{})
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	switch err {
	case nil:
		r.notify = os.NewFile(uintptr(fd), "inotify")
	case unix.EMFILE: // fs.inotify.max_user_instances, which all runs of a user share
	default:
		return failure.New("run", failure.Errno(err, syscall.EIO), "no inotify: %v", err)
	}
	r.byInode, r.byWatch, r.owners = map[inode]*tracked{}, map[int32]*tracked{}, map[int]*os.File{}
	return nil
}

// close releases every file.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	for _, t := range r.byInode {
		r.forgetLocked(t)
	}
	for _, p := range r.owners {
		p.Close()
	}
	r.owners = nil
	r.mu.Unlock()
	close(r.ended)
	if r.notify != nil {
		r.notify.Close()
	}
	r.ending.Wait()
}

// find returns the tracked file with the inode, or nil.
func (r *registry) find(ino inode) *tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byInode[ino]
}

// track adds a file to the registry: one that is part of an open device, or one with a function to call after its
// last copy. A file that is tracked already stays as it is.
func (r *registry) track(d *os.File, file *openFile, gone func()) (*tracked, error) {
	var st unix.Stat_t
	if err := withFD(d, func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, err
	}
	ino := inodeOf(&st)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, unix.EBADF
	}
	if t := r.byInode[ino]; t != nil {
		return t, nil
	}
	t := &tracked{d: d, ino: ino, file: file, gone: gone}
	r.byInode[ino] = t
	if r.notify == nil {
		return t, nil
	}
	var wd int
	err := withFD(d, func(fd int) (err error) {
		wd, err = unix.InotifyAddWatch(int(r.notify.Fd()), fmt.Sprintf("/proc/self/fd/%d", fd), unix.IN_OPEN|unix.IN_CLOSE)
		return err
	})
	if err != nil {
		delete(r.byInode, ino)
		return nil, err
	}
	t.watch = int32(wd)
	r.byWatch[t.watch] = t
	return t, nil
}

// beginCopy counts a copy of t before the supervisor opens it. endCopy follows when the copy is in its program, or could
// not be added to it; cancelCopy follows if it could not be opened.
func (r *registry) beginCopy(t *tracked) { r.count(t, 1, 1) }

func (r *registry) endCopy(t *tracked) { r.count(t, 0, -1) }

func (r *registry) cancelCopy(t *tracked) { r.count(t, -1, -1) }

func (r *registry) count(t *tracked, given, giving int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.held += given
	t.given += given
	t.giving += giving
}

// watch reads inotify's events: a copy of a file was opened, or ended.
func (r *registry) watch() {
	if r.notify == nil {
		r.scan()
		return
	}
	buf := make([]byte, 4096)
	for {
		n, err := r.notify.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask, name := int32(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[12:])
			if mask&unix.IN_OPEN != 0 {
				r.openedCopy(wd)
			} else {
				r.closedCopy(wd)
			}
			b = b[min(len(b), unix.SizeofInotifyEvent+int(name)):]
		}
	}
}

// scanEvery is the time between two looks at /proc where there is no inotify.
const scanEvery = 100 * time.Millisecond

// scan is watch without inotify: it calls verify periodically, for the files of which programs got a copy.
func (r *registry) scan() {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			return
		case <-tick.C:
		}
		held := map[inode]*tracked{}
		r.mu.Lock()
		for ino, t := range r.byInode {
			if t.given > 0 {
				held[ino] = t
			}
		}
		r.mu.Unlock()
		if len(held) > 0 {
			r.verify(held)
		}
	}
}

func (r *registry) openedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.byWatch[wd]; t != nil {
		t.opens++
		t.reopened = t.reopened || t.opens > t.given
	}
}

func (r *registry) closedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.byWatch[wd]
	if t == nil {
		return
	}
	if t.held--; t.held <= 0 && !t.reopened {
		r.forgetLocked(t)
		return
	}
	// The counts are no proof in either direction: inotify merges equal events, so that held may be too high, and
	// a program that has reopened the file makes it too low. /proc decides.
	if t.checking {
		t.recheck = true
		return
	}
	t.checking = true
	r.ending.Add(1)
	go func() {
		defer r.ending.Done()
		for more := true; more; {
			r.verify(map[inode]*tracked{t.ino: t})
			r.mu.Lock()
			more, t.recheck = t.recheck && r.byInode[t.ino] == t, false
			t.checking = more
			r.mu.Unlock()
		}
	}()
}

// verify forgets those files of left that no process holds, by what /proc shows. A file of which a copy was given
// meanwhile stays: the process that has it may have been looked at before.
func (r *registry) verify(left map[inode]*tracked) {
	before := map[*tracked]int{}
	r.mu.Lock()
	owners := map[int]bool{}
	for ino, t := range left {
		if r.byInode[ino] != t || t.giving > 0 {
			delete(left, ino)
			continue
		}
		before[t] = t.given
		if t.file != nil {
			owners[t.file.owner] = true
		}
	}
	r.mu.Unlock()
	for pid := range owners { // checked first: the process that opened a file usually holds it
		held(pid, left)
	}
	if len(left) == 0 {
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		held(pid, left)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ino, t := range left {
		if r.byInode[ino] == t && t.given == before[t] {
			r.forgetLocked(t)
		}
	}
}

// forget removes t from the registry: no program got a copy of it.
func (r *registry) forget(t *tracked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byInode[t.ino] == t {
		r.forgetLocked(t)
	}
}

// forgetLocked removes t from the registry and starts a goroutine that tells the owner: a device by Unmapped, and by
// Released if it was its last file; otherwise t.gone.
func (r *registry) forgetLocked(t *tracked) {
	if r.notify != nil {
		unix.InotifyRmWatch(int(r.notify.Fd()), uint32(t.watch))
		delete(r.byWatch, t.watch)
	}
	delete(r.byInode, t.ino)
	tell := t.gone
	if f := t.file; f != nil {
		last := true
		for _, other := range r.byInode {
			last = last && other.file != f
		}
		tell = func() {
			if t.d != f.Descriptor() {
				f.Unmapped(t.d)
			}
			if last {
				f.Released()
			}
		}
	}
	r.ending.Add(1)
	go func() {
		defer r.ending.Done()
		tell()
	}()
}

// watchProcess makes orphaned run when the process of c has ended, in case inotify misses a close. It returns the pidfd
// of the process, or nil if it has ended. c must not be answered yet: that keeps the process's number from being reused.
func (s *Supervisor) watchProcess(c *Call) *os.File {
	r, pid := &s.files, c.Process()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if p := r.owners[pid]; p != nil && !readable(p) && c.Alive() {
		return p
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	p := os.NewFile(uintptr(fd), "pidfd")
	if !c.Alive() { // the number may be another process's
		p.Close()
		return nil
	}
	r.owners[pid] = p // in the place of an ended process that had the same number
	r.ending.Add(1)
	go func() {
		defer r.ending.Done()
		awaitReadable(p)
		r.orphaned(pid, p)
	}()
	return p
}

// readable reports whether a descriptor is readable, as that of a process that has ended is.
func readable(f *os.File) bool {
	ended := false
	withFD(f, func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p, 0)
		ended = n > 0
		return nil
	})
	return ended
}

// awaitReadable waits until the descriptor, which is not blocking, is readable or
// closed.
func awaitReadable(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p, 0)
		return n > 0
	})
}

// orphaned handles the end of a process: it forgets the files of the devices that the process opened, unless another
// process holds them. p is the pidfd of the process.
func (r *registry) orphaned(pid int, p *os.File) {
	left := map[inode]*tracked{}
	r.mu.Lock()
	p.Close()
	if r.owners[pid] == p {
		delete(r.owners, pid)
	}
	for ino, t := range r.byInode {
		if t.file != nil && t.file.process == p {
			left[ino] = t
			if !r.closed {
				t.file.OwnerEnded()
			}
		}
	}
	r.mu.Unlock()
	r.verify(left)
}

// held removes from left the inodes of the files that a process has open or mapped.
func held(pid int, left map[inode]*tracked) {
	if pid = living(pid); pid == 0 {
		return
	}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(folder+"/"+e.Name(), &st) == nil {
			delete(left, inodeOf(&st))
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for ino := range left {
		if hasInode(maps, ino) {
			delete(left, ino)
		}
	}
}

// hasInode reports whether /proc/PID/maps lists a mapping of the inode.
func hasInode(maps []byte, ino inode) bool {
	return bytes.Contains(maps, fmt.Appendf(nil, " %02x:%02x %d ", unix.Major(ino.dev), unix.Minor(ino.dev), ino.ino))
}
