//go:build linux && (amd64 || arm64)

package session

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/rdmacm"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// openService opens the communication manager of a device, and describes the device to the
// manager of rdma_cm.
func openService(d *uverbs.Device) (*cmcore.Service, rdmacm.Device, error) {
	a, eng := d.Adapter().Attr(), d.Adapter().Engine()
	s, err := cmcore.Open(eng.Port(), 0, cmcore.Options{GUID: a.NodeGUID})
	if err != nil {
		return nil, rdmacm.Device{}, fmt.Errorf("run: the connection manager of %s: %w", d.Name(), err)
	}
	c := rdmacm.Device{Service: s, NodeGUID: a.NodeGUID, Port: 1, MTU: eng.ActiveMTU().Bytes()}
	c.GIDs = connectable(d.Adapter())
	c.Left = d.Adapter().PeerLeft
	return s, c, nil
}

// cmNode is the node of the connection manager.
type cmNode struct{ *rdmacm.Manager }

func (cmNode) Major() uint32 { return uverbs.CMMajor }
func (cmNode) Minor() uint32 { return uverbs.CMMinor }

func (n cmNode) Open(*intercept.Call) (intercept.File, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	f := &cmFile{r: os.NewFile(uintptr(p[0]), "rdma_cm"), w: os.NewFile(uintptr(p[1]), "rdma_cm")}
	f.File = n.Manager.Open(f.count)
	return f, nil
}

// cmFile is one open of the connection manager's node. The program's descriptor
// is the read end of a pipe with a byte for each event, so that polling it works;
// the bytes are taken out here, when an event is fetched.
type cmFile struct {
	*rdmacm.File
	r, w *os.File

	mu      sync.Mutex
	pending int  // events
	bytes   int  // in the pipe
	closed  bool // both ends
}

// mostBytes limits the bytes in the pipe to fewer than it holds. The program only sees
// whether there are any.
const mostBytes = 1024

func (f *cmFile) count(delta int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.pending += delta
	var one [1]byte
	for f.bytes < min(f.pending, mostBytes) {
		if n, _ := unix.Write(int(f.w.Fd()), one[:]); n != 1 {
			return
		}
		f.bytes++
	}
	for f.bytes > max(f.pending, 0) {
		if n, _ := unix.Read(int(f.r.Fd()), one[:]); n != 1 {
			return
		}
		f.bytes--
	}
}

// Descriptor implements intercept.File.
func (f *cmFile) Descriptor() *os.File { return f.r }

// Ioctl implements intercept.File.
func (f *cmFile) Ioctl(c *intercept.Call, _ uint64) { c.Fail(unix.ENOTTY) }

// Mapping implements intercept.File.
func (f *cmFile) Mapping(uint64, uint64) (*os.File, error) { return nil, syscall.ENODEV }

// OwnerEnded implements intercept.File. The file keeps no memory of its process.
func (f *cmFile) OwnerEnded() {}

// MayWait implements intercept.File. The file keeps no memory of its process.
func (f *cmFile) MayWait() {}

// Unmapped implements intercept.File.
func (f *cmFile) Unmapped(*os.File) {}

// Write implements intercept.File.
func (f *cmFile) Write(c *intercept.Call, data []byte) {
	cancel := f.File.Write(cmProcess{c}, data, c.NonBlocking(), func(n int, errno syscall.Errno) {
		if errno != 0 {
			c.Fail(errno)
			return
		}
		c.Return(int64(n))
	})
	c.Defer(func() {
		if cancel() {
			c.Interrupt()
		}
	})
}

// Released implements intercept.File.
func (f *cmFile) Released() {
	f.File.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.r.Close()
	f.w.Close()
}

// cmProcess is the program that wrote a command.
type cmProcess struct{ *intercept.Call }

// File implements rdmacm.Process.
func (p cmProcess) File(fd int) *rdmacm.File {
	if f, ok := p.Call.File(fd).(*cmFile); ok {
		return f.File
	}
	return nil
}
