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

// withFD calls use with the descriptor of d, and returns its error. It returns EBADF if d is closed: another
// goroutine closes the files of a device when the device's process is killed.
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

// tracked is a file that the supervisor shares with programs. It is either a part of an open device, or a file with a
// function (gone) that is called when no program has the file any more. A copy is an open file description of the file
// that the supervisor has opened for a program. A copy ends when every descriptor and mapping of it is closed.
type tracked struct {
	d      *os.File // the supervisor's descriptor
	ino    inode
	device *openFile // the opened device file that the file is part of; nil: none
	gone   func()    // called after the last copy, if device is nil

	// registry.mu guards the following fields.
	wd        int32 // inotify's watch descriptor of the file
	copies    int   // number of copies that the supervisor has opened so far
	inTransit int   // number of copies that their program has not received yet, so /proc does not show them there
	balance   int   // copies, less the number of closes that inotify has reported
	opens     int   // number of opens that inotify has reported so far
	reopened  bool  // opens was above copies once: a program has opened the file through /proc/PID/fd, so balance is too low
	checking  bool  // a goroutine of closedCopy calls removeUnheld
	recheck   bool  // a copy was closed while checking was set, so removeUnheld must be called once more
}

// registry holds the tracked files, and detects when the last copy of a file has ended. Three kinds of event make it
// check a file:
//
//   - inotify reports that a copy was closed. It does not report by which process, and it merges equal events, so the
//     counts in tracked may be wrong.
//   - A process that opened a device has ended.
//   - Without inotify, a timer expires.
//
// If the counts are not conclusive, removeUnheld searches the open files and mappings of all programs in /proc.
type registry struct {
	notify *os.File      // inotify instance; nil: the user's limit of instances was reached
	ended  chan struct{} // closed by close

	mu sync.Mutex
	// mu guards the following fields.
	byInode map[inode]*tracked
	byWD    map[int32]*tracked // by tracked.wd
	owners  map[int]*os.File   // pidfd of each process that opened a device, by process number
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

// close removes every file, as endLocked does, and waits for the registry's goroutines.
func (r *registry) close() {
	r.mu.Lock()
	r.closed = true
	for _, t := range r.byInode {
		r.endLocked(t)
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

// addCopy counts a copy of t. The supervisor calls it before it opens the copy, and later either copyArrived or
// cancelCopy.
func (r *registry) addCopy(t *tracked) { r.count(t, 1, 1) }

// copyArrived records that the program has received the copy, or could not receive it.
func (r *registry) copyArrived(t *tracked) { r.count(t, 0, -1) }

// cancelCopy records that the copy could not be opened.
func (r *registry) cancelCopy(t *tracked) { r.count(t, -1, -1) }

func (r *registry) count(t *tracked, copies, inTransit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.balance += copies
	t.copies += copies
	t.inTransit += inTransit
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
			r.event(wd, mask)
			b = b[min(len(b), unix.SizeofInotifyEvent+int(nameLen)):]
		}
	}
}

// event handles an event of inotify. Those that are neither an open nor a close, nor the loss of events, are of files that
// were removed from the registry.
func (r *registry) event(wd int32, mask uint32) {
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0: // any file may have been closed
		r.scan()
	case mask&unix.IN_OPEN != 0:
		r.openedCopy(wd)
	default:
		r.closedCopy(wd)
	}
}

// scanEvery is the time between two scans of /proc where there is no inotify.
const scanEvery = 100 * time.Millisecond

// watchByScans is watch without inotify: every scanEvery, it calls removeUnheld for the files that have had a copy.
func (r *registry) watchByScans() {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.ended:
			return
		case <-tick.C:
		}
		r.scan()
	}
}

// scan calls removeUnheld for the files that have had a copy.
func (r *registry) scan() {
	candidates := map[inode]*tracked{}
	r.mu.Lock()
	for ino, t := range r.byInode {
		if t.copies > 0 {
			candidates[ino] = t
		}
	}
	r.mu.Unlock()
	if len(candidates) > 0 {
		r.removeUnheld(candidates)
	}
}

// openedCopy handles the event that a copy was opened, by the supervisor or by a program.
func (r *registry) openedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.byWD[wd]; t != nil {
		t.opens++
		t.reopened = t.reopened || t.opens > t.copies
	}
}

// closedCopy handles the event that a copy was closed. If the counts show that it was the last one, closedCopy removes
// the file. Otherwise the counts may be wrong, so a goroutine calls removeUnheld.
func (r *registry) closedCopy(wd int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.byWD[wd]
	if t == nil {
		return
	}
	if t.balance--; t.balance <= 0 && !t.reopened {
		r.endLocked(t)
		return
	}
	// balance is too high if inotify has merged events, and too low if a program has reopened the file.
	if t.checking {
		t.recheck = true
		return
	}
	t.checking = true
	r.goroutines.Go(func() {
		for more := true; more; {
			r.removeUnheld(map[inode]*tracked{t.ino: t})
			r.mu.Lock()
			more, t.recheck = t.recheck && r.byInode[t.ino] == t, false
			t.checking = more
			r.mu.Unlock()
		}
	})
}

// removeUnheld searches /proc for processes that have the candidates open or mapped, and removes from the registry the files
// that no process has. It keeps a file of which the supervisor has opened a copy during the call, because the process
// that received the copy may have been searched before. removeUnheld changes the map candidates.
func (r *registry) removeUnheld(candidates map[inode]*tracked) {
	copies := map[*tracked]int{} // tracked.copies before the search
	r.mu.Lock()
	owners := map[int]bool{}
	for ino, t := range candidates {
		if r.byInode[ino] != t || t.inTransit > 0 {
			delete(candidates, ino)
			continue
		}
		copies[t] = t.copies
		if t.device != nil {
			owners[t.device.owner] = true
		}
	}
	r.mu.Unlock()
	for pid := range owners { // searched first, because the process that opened a device usually still has its files
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
		if r.byInode[ino] == t && t.copies == copies[t] {
			r.endLocked(t)
		}
	}
}

// end removes t from the registry, as after the end of its last copy. Callers use it for files that have had no
// copy.
func (r *registry) end(t *tracked) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byInode[t.ino] == t {
		r.endLocked(t)
	}
}

// endLocked removes t from the registry, and starts a goroutine that reports the end of its last copy. If t is part
// of a device, the goroutine calls the device's Unmapped, unless t is the device's descriptor, and then Released, if the
// registry has no other file of the device. Otherwise it calls t.gone. r.mu is held.
func (r *registry) endLocked(t *tracked) {
	if r.notify != nil {
		unix.InotifyRmWatch(int(r.notify.Fd()), uint32(t.wd))
		delete(r.byWD, t.wd)
	}
	delete(r.byInode, t.ino)
	report := t.gone
	if f := t.device; f != nil {
		last := true
		for _, other := range r.byInode {
			last = last && other.device != f
		}
		report = func() {
			if t.d != f.Descriptor() {
				f.Unmapped(t.d)
			}
			if last {
				f.Released()
			}
		}
	}
	r.goroutines.Go(report)
}

// watchProcess starts a goroutine that calls ownerEnded when the process of c has ended. The device of the process then
// ends even if inotify missed a close. watchProcess returns the pidfd of the process, or nil if the process has ended.
// The caller must not have answered c: while c waits, the process's number is not reused.
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
	if !c.Alive() { // the process has ended, so p may be the pidfd of another process with the same number
		p.Close()
		return nil
	}
	r.owners[pid] = p // replaces the pidfd of an ended process with the same number, if any
	r.goroutines.Go(func() {
		awaitReadable(p)
		r.ownerEnded(pid, p)
	})
	return p
}

// readable reports whether a descriptor is readable. A pidfd becomes readable when its process ends.
func readable(f *os.File) bool {
	yes := false
	withFD(f, func(fd int) error {
		yes = arrived(fd, 0)
		return nil
	})
	return yes
}

// arrived waits some milliseconds until a descriptor is readable, and reports whether it is.
func arrived(fd, milliseconds int) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, milliseconds)
	return n > 0
}

// awaitReadable waits until a descriptor in non-blocking mode is readable or closed.
func awaitReadable(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) bool { return arrived(int(fd), 0) })
}

// ownerEnded handles the end of a process that opened devices. It removes the devices' files from the registry, except
// those that another process has. p is the pidfd of the process.
func (r *registry) ownerEnded(pid int, p *os.File) {
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
	r.removeUnheld(candidates)
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
