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

// tracked is a file that the supervisor shares with programs: a part of an open device, or a file with a function that
// is called when no program has it any more. A copy is an open file description of the file in programs. It ends when
// every descriptor and mapping of it is closed.
type tracked struct {
	d      *os.File // the supervisor's descriptor
	ino    inode
	device *openFile // the open device that the file is part of; nil: none
	gone   func()    // called after the last copy, if device is nil

	// registry.mu guards the following fields.
	wd       int32 // inotify's watch descriptor of the file
	given    int   // copies that the supervisor has ever opened for programs
	giving   int   // those of them that are not yet in their program, so that /proc does not show them
	open     int   // given, less the closes that inotify has reported
	opens    int   // opens that inotify has ever reported
	reopened bool  // opens > given: a program has opened the file through /proc/PID/fd, so that t.open is too low
	checking bool  // a goroutine of closedCopy calls verify
	recheck  bool  // a copy was closed while checking, so that verify must be called once more
}

// registry holds the tracked files, and finds the end of the last copy of each. Three sources say when that may be:
// inotify, which reports that a copy was opened or closed, but not by whom, and merges equal events; the end of a process
// that opened a device; and, without inotify, a timer. A file whose counts do not settle it is looked for in /proc, which
// shows the files of every process (verify).
type registry struct {
	notify *os.File      // inotify; nil: the user has no instance left
	ended  chan struct{} // closed by close

	mu sync.Mutex
	// mu guards the following fields.
	byInode map[inode]*tracked
	byWD    map[int32]*tracked // by tracked.wd
	owners  map[int]*os.File   // pidfds of the processes that opened a device
	closed  bool

	goroutines sync.WaitGroup // close waits for them
}

// open makes a registry usable. The caller starts watch.
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
	r.byInode, r.byWD, r.owners = map[inode]*tracked{}, map[int32]*tracked{}, map[int]*os.File{}
	return nil
}

// close forgets every file, tells the owners, and waits for the registry's goroutines.
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
	r.goroutines.Wait()
}

// find returns the tracked file with the inode, or nil.
func (r *registry) find(ino inode) *tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byInode[ino]
}

// track adds a file to the registry: a part of device, or, if device is nil, a file after whose last copy gone is
// called. A file that is tracked already stays as it is, and is returned. The error is EBADF if the registry or d is
// closed, or that of inotify.
func (r *registry) track(d *os.File, device *openFile, gone func()) (*tracked, error) {
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
	t := &tracked{d: d, ino: ino, device: device, gone: gone}
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
	t.wd = int32(wd)
	r.byWD[t.wd] = t
	return t, nil
}

// beginCopy counts a copy of t before the supervisor opens it. endCopy follows when the program has the copy, or could
// not be given it; cancelCopy follows if the copy could not be opened.
func (r *registry) beginCopy(t *tracked) { r.count(t, 1, 1) }

func (r *registry) endCopy(t *tracked) { r.count(t, 0, -1) }

func (r *registry) cancelCopy(t *tracked) { r.count(t, -1, -1) }

func (r *registry) count(t *tracked, given, giving int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.open += given
	t.given += given
	t.giving += giving
}

// watch handles inotify's events until the registry is closed.
func (r *registry) watch() {
	if r.notify == nil {
		r.watchByScans()
		return
	}
	buf := make([]byte, 4096)
	for {
		n, err := r.notify.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask, nameLen := int32(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[12:])
			if mask&unix.IN_OPEN != 0 {
				r.openedCopy(wd)
			} else {
				r.closedCopy(wd)
			}
			b = b[min(len(b), unix.SizeofInotifyEvent+int(nameLen)):]
		}
	}
}

// scanEvery is the time between two scans of /proc where there is no inotify.
const scanEvery = 100 * time.Millisecond

// watchByScans is watch without inotify: it calls verify every scanEvery, for the files of which programs got a copy.
func (r *registry) watchByScans() {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			return
		case <-tick.C:
		}
		candidates := map[inode]*tracked{}
		r.mu.Lock()
		for ino, t := range r.byInode {
			if t.given > 0 {
				candidates[ino] = t
			}
		}
		r.mu.Unlock()
		if len(candidates) > 0 {
			r.verify(candidates)
		}
	}
}

// openedCopy handles the event that a copy was opened, by the supervisor or by a program.
func (r *registry) openedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.byWD[wd]; t != nil {
		t.opens++
		t.reopened = t.reopened || t.opens > t.given
	}
}

// closedCopy handles the event that a copy was closed. It forgets the file if the counts say that this was the last one,
// and they are right; otherwise a goroutine calls verify.
func (r *registry) closedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.byWD[wd]
	if t == nil {
		return
	}
	if t.open--; t.open <= 0 && !t.reopened {
		r.forgetLocked(t)
		return
	}
	// t.open may be too high, because inotify merges equal events, and too low, if a program has reopened the file.
	// /proc decides.
	if t.checking {
		t.recheck = true
		return
	}
	t.checking = true
	r.goroutines.Add(1)
	go func() {
		defer r.goroutines.Done()
		for more := true; more; {
			r.verify(map[inode]*tracked{t.ino: t})
			r.mu.Lock()
			more, t.recheck = t.recheck && r.byInode[t.ino] == t, false
			t.checking = more
			r.mu.Unlock()
		}
	}()
}

// verify forgets those of the candidates that no process holds, by what /proc shows; it changes the map. A file of which
// a copy was given during the call stays, too: the process that got it may have been examined before.
func (r *registry) verify(candidates map[inode]*tracked) {
	given := map[*tracked]int{} // tracked.given at the beginning
	r.mu.Lock()
	owners := map[int]bool{}
	for ino, t := range candidates {
		if r.byInode[ino] != t || t.giving > 0 {
			delete(candidates, ino)
			continue
		}
		given[t] = t.given
		if t.device != nil {
			owners[t.device.owner] = true
		}
	}
	r.mu.Unlock()
	for pid := range owners { // checked first: the process that opened a file usually holds it
		removeHeld(pid, candidates)
	}
	if len(candidates) == 0 {
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		removeHeld(pid, candidates)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for ino, t := range candidates {
		if r.byInode[ino] == t && t.given == given[t] {
			r.forgetLocked(t)
		}
	}
}

// forget removes t from the registry, as after its last copy. Its callers gave no program a copy.
func (r *registry) forget(t *tracked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byInode[t.ino] == t {
		r.forgetLocked(t)
	}
}

// forgetLocked removes t from the registry, and starts a goroutine that tells the owner of the file. A device is told by
// Unmapped unless t is its descriptor, and by Released if t was its last file. Otherwise t.gone is called.
func (r *registry) forgetLocked(t *tracked) {
	if r.notify != nil {
		unix.InotifyRmWatch(int(r.notify.Fd()), uint32(t.wd))
		delete(r.byWD, t.wd)
	}
	delete(r.byInode, t.ino)
	tell := t.gone
	if f := t.device; f != nil {
		last := true
		for _, other := range r.byInode {
			last = last && other.device != f
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
	r.goroutines.Add(1)
	go func() {
		defer r.goroutines.Done()
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
		return p // watched already
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
	r.goroutines.Add(1)
	go func() {
		defer r.goroutines.Done()
		awaitReadable(p)
		r.orphaned(pid, p)
	}()
	return p
}

// readable reports whether a descriptor is readable. A pidfd is if its process has ended.
func readable(f *os.File) bool {
	ready := false
	withFD(f, func(fd int) error {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p, 0)
		ready = n > 0
		return nil
	})
	return ready
}

// awaitReadable waits until the descriptor, which is not blocking, is readable or closed.
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
	candidates := map[inode]*tracked{}
	r.mu.Lock()
	p.Close()
	if r.owners[pid] == p {
		delete(r.owners, pid)
	}
	for ino, t := range r.byInode {
		if t.device != nil && t.device.process == p {
			candidates[ino] = t
			if !r.closed {
				t.device.OwnerEnded()
			}
		}
	}
	r.mu.Unlock()
	r.verify(candidates)
}

// removeHeld removes from candidates the files that a process has open or mapped.
func removeHeld(pid int, candidates map[inode]*tracked) {
	if pid = living(pid); pid == 0 {
		return
	}
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		var st unix.Stat_t
		if unix.Stat(folder+"/"+e.Name(), &st) == nil {
			delete(candidates, inodeOf(&st))
		}
	}
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	for ino := range candidates {
		if hasInode(maps, ino) {
			delete(candidates, ino)
		}
	}
}

// hasInode reports whether /proc/PID/maps lists a mapping of the inode.
func hasInode(maps []byte, ino inode) bool {
	return bytes.Contains(maps, fmt.Appendf(nil, " %02x:%02x %d ", unix.Major(ino.dev), unix.Minor(ino.dev), ino.ino))
}
