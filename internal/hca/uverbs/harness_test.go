//go:build linux

package uverbs

import (
	"net/netip"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/procmem"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// program makes ioctls as a library does. Its memory is part of the test's own process.
type program struct {
	t    testing.TB
	dev  *Device
	file *File
	mem  []byte
	next int
	fds  map[int]*os.File // descriptors that Inject returned
}

// newDevice opens a device on a network of its own.
func newDevice(t testing.TB) *Device {
	t.Helper()
	return openDevice(t, Config{Name: "mlx5_0"})
}

func openDevice(t testing.TB, cfg Config) *Device {
	t.Helper()
	addr := netip.MustParseAddr("10.9.0.1")
	net := inproc.NewNetwork(nil)
	conn, err := net.Listen(netip.AddrPortFrom(addr, 4791))
	fatal.If(t, err)
	cfg.Addr = addr
	d, err := Open(cfg, adapter.Config{Addr: addr, Conn: conn})
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the device: %v", err)
		}
	})
	return d
}

// newProgram opens the device and makes a context.
func newProgram(t testing.TB, d *Device) *program {
	t.Helper()
	process, err := procmem.Open(os.Getpid())
	fatal.If(t, err)
	f, err := d.Open(process)
	fatal.If(t, err)
	mem, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	fatal.If(t, err)
	p := &program{t: t, dev: d, file: f, mem: mem, fds: map[int]*os.File{}}
	t.Cleanup(func() {
		f.Close()
		unix.Munmap(mem)
	})
	p.must(objDevice, deviceGetContext, p.out(uhwOut, ucontextRespSize))
	return p
}

// alloc returns the address of n bytes of zeros, aligned to a page if they fill one.
func (p *program) alloc(n int) uint64 {
	align := 64
	if n >= pageSize {
		align = pageSize
	}
	at := (p.next + align - 1) &^ (align - 1)
	if at+n > len(p.mem) {
		p.t.Fatal("the program's memory is used up")
	}
	p.next = at + n
	clear(p.mem[at:p.next])
	return uint64(uintptr(unsafe.Pointer(&p.mem[at])))
}

// at returns n bytes at an address that alloc returned.
func (p *program) at(addr uint64, n int) fields {
	off := addr - uint64(uintptr(unsafe.Pointer(&p.mem[0])))
	return fields(p.mem[off : off+uint64(n)])
}

// in, num and out make the attributes of an ioctl: bytes, a number, and room for an answer.
func (p *program) in(id uint16, b []byte) attr {
	if len(b) <= 8 {
		var inline [8]byte
		copy(inline[:], b)
		return attr{id: id, len: uint16(len(b)), data: le.Uint64(inline[:])}
	}
	addr := p.alloc(len(b))
	copy(p.at(addr, len(b)), b)
	return attr{id: id, len: uint16(len(b)), data: addr}
}

func num(id uint16, v uint64) attr { return attr{id: id, data: v} }

func (p *program) out(id uint16, n int) attr {
	return attr{id: id, len: uint16(n), data: p.alloc(n)}
}

// ioctl returns the attributes as the device left them.
func (p *program) ioctl(object, m uint16, attrs ...attr) ([]attr, syscall.Errno) {
	return p.callAs(p, object, m, attrs...)
}

// callAs is ioctl for another caller.
func (p *program) callAs(caller Caller, object, m uint16, attrs ...attr) ([]attr, syscall.Errno) {
	size := headerSize + len(attrs)*attrSize
	addr := p.alloc(size)
	b := p.at(addr, size)
	b.put16(0, uint16(size))
	b.put16(2, object)
	b.put16(4, m)
	b.put16(6, uint16(len(attrs)))
	b.put32(16, driverMLX5)
	for i, a := range attrs {
		le.PutUint16(b[headerSize+i*attrSize:], a.id)
		le.PutUint16(b[headerSize+i*attrSize+2:], a.len)
		le.PutUint16(b[headerSize+i*attrSize+4:], a.flags)
		le.PutUint64(b[headerSize+i*attrSize+8:], a.data)
	}
	errno := p.file.Ioctl(caller, addr)
	done, err := parseAttrs(b[headerSize:])
	fatal.If(p.t, err)
	return done, errno
}

func (p *program) must(object, m uint16, attrs ...attr) []attr {
	p.t.Helper()
	done, errno := p.ioctl(object, m, attrs...)
	if errno != 0 {
		p.t.Fatalf("object %#x method %#x: %v", object, m, errno)
	}
	return done
}

// got returns the n bytes that an ioctl left in an output attribute.
func (p *program) got(attrs []attr, id uint16, n int) fields {
	p.t.Helper()
	for _, a := range attrs {
		if a.id == id {
			return p.at(a.data, n)
		}
	}
	p.t.Fatalf("no attribute %#x", id)
	return nil
}

// write makes a command of the older interface and returns its answer.
func (p *program) write(cmd uint32, in fields, answer int, uhw ...attr) (fields, syscall.Errno) {
	attrs := append([]attr{num(writeCmd, uint64(cmd)), p.in(coreIn, in), p.out(coreOut, answer)}, uhw...)
	done, errno := p.ioctl(objDevice, deviceInvokeWrite, attrs...)
	return p.got(done, coreOut, answer), errno
}

func (p *program) mustWrite(cmd uint32, in fields, answer int, uhw ...attr) fields {
	p.t.Helper()
	r, errno := p.write(cmd, in, answer, uhw...)
	if errno != 0 {
		p.t.Fatalf("command %d: %v", cmd&^extended, errno)
	}
	return r
}

// pd allocates a protection domain and returns its handle.
func (p *program) pd() uint32 { return p.mustWrite(cmdAllocPD, make(fields, 8), 4).u32(0) }

// Process implements Caller.
func (p *program) Process() int                       { return os.Getpid() }
func (p *program) Memory() (*procmem.Process, error)  { return procmem.Open(os.Getpid()) }
func (p *program) Read(addr uint64, dst []byte) error { return p.file.mem.Read(addr, dst) }
func (p *program) Write(addr uint64, src []byte) error {
	return p.file.mem.Write(addr, src)
}

// Give implements Caller.
func (p *program) Give(f *os.File) (int, error) { return unix.Dup(int(f.Fd())) }

func (p *program) Injected(fd int) *os.File { return p.fds[fd] }
func (p *program) MayTakeLong()             {}
func (p *program) Copy(fd int) (*os.File, error) {
	fd, err := unix.Dup(fd)
	return os.NewFile(uintptr(fd), "copy"), err
}
func (p *program) FileID(fd int) (dev, ino uint64, ok bool) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Dev, st.Ino, err == nil
}

func (p *program) Inject(f *os.File, gone func()) (int, error) {
	p.fds[int(f.Fd())] = f
	return int(f.Fd()), nil
}
