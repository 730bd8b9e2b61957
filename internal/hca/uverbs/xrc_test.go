//go:build linux

package uverbs

import (
	"os"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
)

// openXRCD opens the domain of a file, or an unnamed one if the descriptor is negative.
func (p *program) openXRCD(fd int, flags uint32) (uint32, syscall.Errno) {
	in := make(fields, 16)
	in.put32(8, uint32(fd))
	in.put32(12, flags)
	r, errno := p.write(cmdOpenXRCD, in, 4, p.out(uhwOut, 4))
	return r.u32(0), errno
}

// target creates an XRC receive QP and returns its handle and number.
func (p *program) target(xrcd uint32) (handle, number uint32) {
	p.t.Helper()
	done := p.must(objQP, qpCreate, num(createQPHandle, 0), num(createQPXRCD, uint64(xrcd)), p.in(createQPUser, make([]byte, 8)), p.in(createQPCap, make([]byte, 20)), num(createQPType, uint64(ibv.XRCRecv)),
		p.out(createQPAnswerCap, 20), p.out(createQPAnswerNumber, 4), p.in(uhwIn, make([]byte, 56)), p.out(uhwOut, 40))
	return uint32(done[0].data), p.got(done, createQPAnswerNumber, 4).u32(0)
}

// TestSharedXRCD lets two programs open the domain of one file.
func TestSharedXRCD(t *testing.T) {
	const create, exclusive = 0o100, 0o200
	d := newDevice(t)
	a, b := newProgram(t, d), newProgram(t, d)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd := int(file.Fd())
	if _, errno := a.openXRCD(fd, 0); errno != syscall.EAGAIN {
		t.Errorf("a file that names no domain: %v", errno)
	}
	if _, errno := a.openXRCD(1<<20, create); errno != syscall.EBADF {
		t.Errorf("a descriptor that is not open: %v", errno)
	}
	x, errno := a.openXRCD(fd, create|exclusive)
	if errno != 0 {
		t.Fatal(errno)
	}
	if _, errno := b.openXRCD(fd, create|exclusive); errno != syscall.EINVAL {
		t.Errorf("the same, exclusively: %v", errno)
	}
	y, errno := b.openXRCD(fd, create)
	if errno != 0 {
		t.Fatal(errno)
	}
	if own, errno := b.openXRCD(-1, create); errno != 0 {
		t.Errorf("an unnamed domain: %v", errno)
	} else {
		b.must(objXRCD, xrcdDestroy, num(attrHandle, uint64(own)))
	}
	a.pd()
	q, number := a.target(x)
	open := make(fields, 32)
	open.put32(16, y)
	open.put32(20, number)
	open.put8(24, 10)
	again := b.mustWrite(40, open, 32)
	if again.u32(4) != number {
		t.Errorf("QP %#x was opened, not %#x", again.u32(4), number)
	}
	for _, v := range []struct {
		p    *program
		xrcd uint32
	}{{a, x}, {b, y}} {
		if _, errno := v.p.ioctl(objXRCD, xrcdDestroy, num(attrHandle, uint64(v.xrcd))); errno != syscall.EBUSY {
			t.Errorf("close of a domain in use: %v", errno)
		}
	}
	a.must(objQP, 1, num(0, uint64(q)), a.out(1, 4))
	// The domain outlives the program that made it.
	a.file.Close()
	if _, errno := b.openXRCD(fd, 0); errno != 0 {
		t.Errorf("the domain has gone with its first program: %v", errno)
	}
	b.file.Close()
	if len(d.xrcds) != 0 {
		t.Errorf("%d domains are left", len(d.xrcds))
	}
}
