//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// A Node is a device file that the supervisor serves.
type Node interface {
	Major() uint32
	Minor() uint32
	// Open makes a File for a process that opens the node.
	Open(c *Call) (File, error)
}

// A File is one open description of a device.
type File interface {
	// Descriptor is the file whose copy the program gets: its inode identifies
	// this File. It stays open until Released.
	Descriptor() *os.File
	// Ioctl answers RDMA_VERBS_IOCTL. Other calls may wait for it until it calls MayTakeLong.
	Ioctl(c *Call, arg uint64)
	// Write answers write, in a goroutine of its own; data is the program's.
	Write(c *Call, data []byte)
	// Mapping returns the file that a shared mapping of the descriptor at offset
	// is to come from: Descriptor's, or another one, whose inode then stands for
	// this File too.
	Mapping(offset, length uint64) (*os.File, error)
	// Unmapped is called when programs hold no descriptor and no mapping any more
	// of a file that Mapping made.
	Unmapped(d *os.File)
	// OwnerEnded is called when the process that opened the File has ended. Others may hold
	// descriptors still. It must not block.
	OwnerEnded()
	// MayWait is called when copies of the memory of the process that opened the File may wait,
	// perhaps several times.
	MayWait()
	// Released is called when the last descriptor and the last mapping are gone.
	Released()
}

// mostWrite is the longest write that a device takes.
const mostWrite = 64 << 10

// openFile is a File with its copies in programs.
type openFile struct {
	File
	node    Node
	path    string
	owner   int      // the process that opened it
	process *os.File // its pidfd

	mapping sync.Mutex // held by one mmap at a time, whose file the descriptor refers to

	mu      sync.Mutex // guards the following fields
	pending inode      // of the file that the last replaced descriptor refers to
	thread  int        // the thread whose mapping of it has not been seen yet; 0: none
}

// openNode answers an open of a device file.
func (s *Supervisor) openNode(c *Call, path string, node Node, flags int) (int, error) {
	file, err := node.Open(c)
	if err != nil {
		return s.refuse(c, "open "+path, err)
	}
	f := &openFile{File: file, node: node, path: path, owner: c.Process(), process: s.watchProcess(c)}
	if f.process == nil {
		file.Released()
		return 0, unix.ESRCH
	}
	t, err := s.files.track(file.Descriptor(), f, nil)
	if err != nil {
		file.Released()
		return 0, err
	}
	if s.mayWait(f.owner) {
		file.MayWait()
	}
	if readable(f.process) { // the process was killed before the file was tracked
		file.OwnerEnded()
	}
	at, err := s.freeFD(c, fdRange.devices)
	if err != nil {
		s.files.end(t)
		return s.refuse(c, "open "+path, err)
	}
	fd, err := s.place(c, t, at, unix.O_RDWR, flags&unix.O_CLOEXEC != 0)
	if err == unix.EBADF {
		// The copy that could not be placed was the last one: f is released.
		return s.refuse(c, "open "+path, noNumber(c, at))
	}
	return fd, err
}

// refuse reports why a call fails, and returns the error.
func (s *Supervisor) refuse(c *Call, what string, err error) (int, error) {
	if s.cfg.Refused != nil {
		s.cfg.Refused(c.Process(), what, err)
	}
	return 0, err
}

// noNumber is the error of a descriptor that the caller's limit forbids.
func noNumber(c *Call, at int) error {
	var limit unix.Rlimit
	unix.Prlimit(c.Process(), unix.RLIMIT_NOFILE, nil, &limit)
	return failure.New("descriptor", unix.EMFILE, "descriptor %d is beyond the process's limit of open files (%d, at most %d: ulimit -n)", at, limit.Cur, limit.Max)
}

// place gives the caller an open description of its own of the file of t, under the
// number at, or the lowest free one if at is negative. The supervisor keeps no
// reference to it, so that the close of the program's last one can be seen.
func (s *Supervisor) place(c *Call, t *tracked, at, mode int, closeOnExec bool) (int, error) {
	s.files.addCopy(t)
	var src int
	err := withFD(t.d, func(fd int) (err error) {
		src, err = unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		s.files.cancelCopy(t)
		return -1, err
	}
	defer s.files.copyArrived(t)
	unix.SetNonblock(src, false) // a fifo's open must not wait, its reads shall
	fd, err := c.add(src, at, closeOnExec)
	if err == unix.EBADF && at >= fdRanges[0].first && raiseLimit(c.Process(), at) {
		fd, err = c.add(src, at, closeOnExec)
	}
	unix.Close(src)
	return fd, err
}

// raiseLimit makes room for the numbers of devices if a process has lowered its
// limit of descriptors. Outside of their range, fstat and write would not be
// intercepted.
func raiseLimit(pid, at int) bool {
	var limit unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit) != nil || limit.Cur > uint64(at) || limit.Max <= uint64(at) {
		return false
	}
	limit.Cur = uint64(at) + 1
	for _, r := range fdRanges { // room for the rest of the range
		if r.first <= at && at <= r.last {
			limit.Cur = min(uint64(r.last)+1, limit.Max)
		}
	}
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil) == nil
}

// freeFD returns a number in one of the parts of fdRanges that is free in the caller, and that its hard
// limit of descriptors permits.
func (s *Supervisor) freeFD(c *Call, part func(fdRange) fdRange) (int, error) {
	var limit unix.Rlimit
	if unix.Prlimit(c.Process(), unix.RLIMIT_NOFILE, nil, &limit) != nil {
		limit.Max = fullLimit
	}
	for _, r := range rangeOrder() {
		r = part(r)
		count := min(r.last+1, int(min(limit.Max, fullLimit))) - r.first
		if count <= 0 {
			continue
		}
		for range count {
			fd := r.first + int(s.nextFD.Add(1)-1)%count
			var st unix.Stat_t
			if unix.Lstat(fmt.Sprintf("/proc/%d/fd/%d", c.Thread(), fd), &st) == unix.ENOENT {
				return fd, nil
			}
		}
	}
	var ranges []string
	for _, r := range fdRanges {
		r = part(r)
		ranges = append(ranges, fmt.Sprintf("%d-%d", r.first, r.last))
	}
	return -1, failure.New("descriptor", unix.EMFILE, "no number for a descriptor is free: devices have %s, the process's limit of open files is %d (ulimit -Hn), and open files have the numbers below it", strings.Join(ranges, ", "), limit.Max)
}

// fullLimit is a limit of descriptors beyond all of fdRanges.
const fullLimit = 1 << 16

// duplicate answers dup and fcntl's F_DUPFD. The lowest free number, which the kernel
// would take, is outside of the range where fstat is intercepted. The copy is an open
// description of its own.
func (s *Supervisor) duplicate(c *Call, a *[6]uint64) (int, error) {
	ino, ok := inodeAt(c, int32(a[0]))
	t, fcntl := s.files.find(ino), c.n.Nr == unix.SYS_FCNTL
	if !ok || t == nil || t.device == nil || fcntl && a[2] > uint64(fdRanges[0].first) {
		return 0, errInKernel
	}
	at, err := s.freeFD(c, fdRange.devices)
	if err != nil {
		return s.refuse(c, "dup", err)
	}
	return s.place(c, t, at, unix.O_RDWR, fcntl && a[1] == unix.F_DUPFD_CLOEXEC)
}

// inodeAt returns the inode that a descriptor of the caller refers to.
func inodeAt(c *Call, fd int32) (inode, bool) {
	var st unix.Stat_t
	if fd < 0 || unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", c.Thread(), fd), &st) != nil {
		return inode{}, false
	}
	return inodeOf(&st), true
}

// fileOf returns the device file that a descriptor of the caller refers to, or nil.
func (s *Supervisor) fileOf(c *Call, fd int32) *openFile {
	ino, ok := inodeAt(c, fd)
	for ok {
		if t := s.files.find(ino); t != nil {
			return t.device
		}
		// Another thread's mmap may have replaced the file meanwhile, whose inode
		// was then forgotten.
		again, still := inodeAt(c, fd)
		if again == ino {
			return nil
		}
		ino, ok = again, still
	}
	return nil
}

func (s *Supervisor) ioctl(c *Call, a *[6]uint64) (int, error) {
	f := s.fileOf(c, int32(a[0]))
	if f == nil {
		return 0, errInKernel
	}
	f.seen(c.Thread())
	f.Ioctl(c, a[2])
	return 0, errAnswered
}

func (s *Supervisor) write(c *Call, a *[6]uint64) (int, error) {
	f := s.fileOf(c, int32(a[0]))
	if f == nil {
		return netlinkHandler((*Supervisor).sendNetlink)(s, c, a)
	}
	if a[2] > mostWrite {
		return 0, unix.EINVAL
	}
	data := make([]byte, a[2])
	if c.Read(a[1], data) != nil {
		return 0, unix.EFAULT
	}
	f.Write(c, data)
	return 0, errAnswered
}

const mapType = 0xf // MAP_TYPE

// mmap lets the program map a file of its own for each queue. The kernel maps the
// file that the descriptor refers to, so the supervisor first makes the descriptor refer
// to the queue's file. It stays so: each of these files stands for the device.
func (s *Supervisor) mmap(c *Call, a *[6]uint64) (int, error) {
	fd := int32(a[4])
	var f *openFile
	if a[3]&mapType != unix.MAP_PRIVATE {
		f = s.fileOf(c, fd)
	}
	if f == nil {
		if isRemote(c, fd) {
			s.waits(c)
		}
		return 0, errInKernel
	}
	f.seen(c.Thread()) // before the lock: its holder may wait for this thread
	f.mapping.Lock()
	defer f.mapping.Unlock()
	f.awaitMapping()
	d, err := f.Mapping(a[5], a[1])
	if err != nil {
		return 0, err
	}
	t, err := s.files.track(d, f, nil)
	if err != nil {
		if d != f.Descriptor() {
			f.Unmapped(d)
		}
		return 0, err
	}
	if have, ok := inodeAt(c, fd); !ok || have != t.ino {
		if _, err := s.place(c, t, int(fd), unix.O_RDWR, true); err != nil {
			return 0, err
		}
	}
	f.mu.Lock()
	f.pending, f.thread = t.ino, c.Thread()
	f.mu.Unlock()
	return 0, errInKernel
}

// seen notes that a thread makes a call: if it is the one whose mmap was continued, its
// mapping has taken place.
func (f *openFile) seen(thread int) {
	f.mu.Lock()
	if f.thread == thread {
		f.thread = 0
	}
	f.mu.Unlock()
}

// mappingTimeout bounds the wait for a thread whose mmap was continued. The thread may have been
// stopped, or its mmap may have failed and the thread makes no other call.
const mappingTimeout = time.Second

// awaitMapping waits until the mmap that was continued last has taken place: until then,
// the descriptor's number must refer to that mapping's file.
func (f *openFile) awaitMapping() {
	for deadline := time.Now().Add(mappingTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
		f.mu.Lock()
		want, other := f.pending, f.thread
		f.mu.Unlock()
		if other == 0 {
			return
		}
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", other))
		if err != nil || hasInode(maps, want) {
			return
		}
		// A thread that sleeps in another call has left mmap.
		call, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", other))
		var nr int
		if n, _ := fmt.Sscan(string(call), &nr); err != nil || n == 1 && nr != unix.SYS_MMAP {
			return
		}
	}
}
