//go:build linux

package uverbs

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

// memory is the memory of a process that opened a device: adapter.Memory on
// package procmem. Queues that the library mapped from the device's descriptor
// are shared with this process and used in place.
type memory struct {
	process *procmem.Process
	maps    *regions
}

func (m *memory) Read(addr uint64, dst []byte) error  { return m.process.Read(addr, dst) }
func (m *memory) Write(addr uint64, src []byte) error { return m.process.Write(addr, src) }
func (m *memory) ReadV(vecs []adapter.Vec) error      { return m.process.ReadV(vecs) }
func (m *memory) WriteV(vecs []adapter.Vec) error     { return m.process.WriteV(vecs) }
func (m *memory) Map(addr uint64, n int) []byte       { return m.maps.view(m.process, addr, n) }

// Pinnable implements adapter.Pinner.
func (m *memory) Pinnable(addr, length uint64, write bool) error {
	return m.process.Pinnable(addr, length, write)
}

// memory returns the memory of the process that makes the ioctl: the one that opened the device,
// or another that got the descriptor from it. Each process registers its own memory.
func (c *command) memory() (*memory, error) {
	f, pid := c.file, c.Process()
	if pid == f.pid && f.mem.process.Alive() {
		return f.mem, nil
	}
	if m := f.others[pid]; m != nil && m.process.Alive() {
		return m, nil
	}
	// The memory of an ended process is freed with the last object that refers to it.
	for pid, m := range f.others {
		if !m.process.Alive() {
			delete(f.others, pid)
		}
	}
	const op = "memory of a process"
	if len(f.others) >= mostProcesses {
		return nil, failure.New(op, unix.EMFILE, "%d processes use one open device: no more can", len(f.others)+1)
	}
	process, err := c.Memory()
	if err != nil {
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "process %d: %v", pid, err)
	}
	m := &memory{process: process, maps: &f.maps}
	if f.others == nil {
		f.others = map[int]*memory{}
	}
	f.others[pid] = m
	return m, nil
}

// mostProcesses bounds the processes with memory of their own that use one open device.
const mostProcesses = 256

// region is a file from which a program maps a queue, with this process's mapping of it.
type region struct {
	d      *os.File
	ino    uint64
	offset uint64 // position of view in the file
	view   []byte
	users  int  // objects with a queue in it
	gone   bool // the program has unmapped it
}

// regions holds the queues that a program has mapped.
type regions struct {
	pid   int // the program's process
	mu    sync.Mutex
	byIno map[uint64]*region
	total uint64
	used  []*region // regions that the object under creation uses
}

// mostMapped bounds the mapped queues of one open device, in bytes.
const mostMapped = 8 << 30

// add makes a file that is large enough for a mapping of length bytes at offset.
func (r *regions) add(offset, length uint64) (*os.File, error) {
	const op = "map a queue"
	r.mu.Lock()
	defer r.mu.Unlock()
	if length == 0 || length%4096 != 0 || length > mostMapped || r.total+length > mostMapped {
		return nil, failure.New(op, unix.ENOMEM, "%d bytes, with %d mapped: at most %d in whole pages are", length, r.total, uint64(mostMapped))
	}
	if err := descriptors.takeQueue(op, r.pid); err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("softmkey-queue", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		descriptors.give(r.pid, 1)
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "no memory file: %v", err)
	}
	d := os.NewFile(uintptr(fd), "queue")
	var st unix.Stat_t
	view, err := []byte(nil), unix.Ftruncate(fd, int64(offset+length))
	if err == nil {
		view, err = unix.Mmap(fd, int64(offset), int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		// The seal keeps the program from truncating a file that this process has mapped.
		unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		d.Close()
		descriptors.give(r.pid, 1)
		return nil, failure.New(op, failure.Errno(err, syscall.EIO), "%d bytes: %v", length, err)
	}
	if r.byIno == nil {
		r.byIno = map[uint64]*region{}
	}
	r.byIno[st.Ino] = &region{d: d, ino: st.Ino, offset: offset, view: view}
	r.total += length
	return d, nil
}

// view returns this process's view of n bytes at addr of the program, if they
// were mapped from one of these files.
func (r *regions) view(process *procmem.Process, addr uint64, n int) []byte {
	if n <= 0 {
		return nil
	}
	m, err := process.MappingAt(addr)
	if err != nil || !m.Shared || addr+uint64(n) > m.End {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.byIno[m.Inode]
	if g == nil || m.Offset < g.offset {
		return nil
	}
	at := addr - m.Start + m.Offset - g.offset
	if at+uint64(n) > uint64(len(g.view)) {
		return nil
	}
	g.users++
	r.used = append(r.used, g)
	return g.view[at : at+uint64(n) : at+uint64(n)]
}

// using calls create, which makes an object, and returns the regions that the object uses.
// One creation is under way at a time.
func (r *regions) using(create func() error) ([]*region, error) {
	r.mu.Lock()
	r.used = nil
	r.mu.Unlock()
	err := create()
	r.mu.Lock()
	used := r.used
	r.used = nil
	r.mu.Unlock()
	if err != nil {
		r.leave(used)
		return nil, err
	}
	return used, nil
}

// leave ends an object's use of its regions.
func (r *regions) leave(used []*region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range used {
		g.users--
		r.freeLocked(g)
	}
}

// unmapped marks a file that the program neither maps nor has open any more.
func (r *regions) unmapped(d *os.File) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.byIno {
		if g.d == d {
			g.gone = true
			r.freeLocked(g)
			return
		}
	}
}

func (r *regions) freeLocked(g *region) {
	if !g.gone || g.users > 0 || g.view == nil {
		return
	}
	delete(r.byIno, g.ino)
	r.total -= uint64(len(g.view))
	unix.Munmap(g.view)
	g.view = nil
	g.d.Close()
	descriptors.give(r.pid, 1)
}

// close frees every region. The objects that used them are closed.
func (r *regions) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.byIno {
		g.gone, g.users = true, 0
		r.freeLocked(g)
	}
}
