//go:build linux

package uverbs

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// patience is how long a test waits for an event, in milliseconds.
const patience = 20_000

// uar is a page of doorbell registers that a program has mapped.
type uar struct {
	id   uint32
	page []byte
}

func (p *program) uar() *uar {
	p.t.Helper()
	done := p.must(objUAR, uarAlloc, num(allocUARHandle, 0), num(allocUARType, 0), p.out(allocUAROffset, 8), p.out(allocUARLength, 4), p.out(allocUARPage, 4))
	offset := p.got(done, allocUAROffset, 8).u64(0)
	d, err := p.file.Mapping(offset, pageSize)
	fatal.If(p.t, err)
	page, err := unix.Mmap(int(d.Fd()), int64(offset), pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	fatal.If(p.t, err)
	p.t.Cleanup(func() { unix.Munmap(page) })
	return &uar{id: p.got(done, allocUARPage, 4).u32(0), page: page}
}

// ring writes a doorbell register.
func (u *uar) ring(off int, v uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&u.page[off])), binary.NativeEndian.Uint64(b[:]))
}

// cq is a completion queue with a completion channel.
type cq struct {
	p          *program
	uar        *uar
	handle     uint32
	number     uint32
	buf, db    uint64
	entries    uint32
	consumer   uint32
	events     uint32
	descriptor int
}

func (p *program) cq(u *uar, entries int) *cq {
	p.t.Helper()
	c := &cq{p: p, uar: u, entries: uint32(entries), buf: p.alloc(entries * 64), db: p.alloc(8)}
	for i := range entries {
		p.at(c.buf, entries*64)[i*64+63] = 0xf1
	}
	c.descriptor = int(p.mustWrite(cmdCreateChannel, make(fields, 8), 4).u32(0))
	uhw := make(fields, 32)
	uhw.put64(0, c.buf)
	uhw.put64(8, c.db)
	uhw.put32(16, 64)
	uhw.put16(22, 2)
	uhw.put16(24, uint16(u.id))
	done := p.must(objCQ, cqCreate, num(createCQHandle, 0), p.in(createCQEntries, le.AppendUint32(nil, uint32(entries-1))), p.in(createCQUser, le.AppendUint64(nil, 0xc0ffee)),
		num(createCQChannel, uint64(c.descriptor)), p.in(createCQVector, make([]byte, 4)), p.out(createCQAnswerEntries, 4), p.in(uhwIn, uhw), p.out(uhwOut, 8))
	c.handle, c.number = uint32(done[0].data), p.got(done, uhwOut, 8).u32(0)
	return c
}

// arm asks for an event of the next completion.
func (c *cq) arm() {
	w := prm.Arm{Sequence: uint8(c.events & 3), CI: c.consumer}.Word()
	prm.PutUint32(c.p.at(c.db, 8)[prm.DoorbellArm:], w)
	c.uar.ring(prm.UARArmCQ, uint64(w)<<32|uint64(c.number))
}

// wait sleeps until a completion comes, and returns it.
func (c *cq) wait() prm.CQE {
	c.p.t.Helper()
	for {
		if e, ok := c.poll(); ok {
			return e
		}
		c.arm()
		if e, ok := c.poll(); ok {
			return e
		}
		if !c.event(patience) {
			c.p.t.Fatal("no event")
		}
	}
}

// event waits for a completion event and reads it.
func (c *cq) event(milliseconds int) bool {
	fd := []unix.PollFd{{Fd: int32(c.descriptor), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fd, milliseconds)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return false
		}
		break
	}
	var b [compEventSize]byte
	if n, err := unix.Read(c.descriptor, b[:]); n != len(b) || le.Uint64(b[:]) != 0xc0ffee {
		c.p.t.Fatalf("event % x, %v", b[:n], err)
	}
	c.events++
	return true
}

func (c *cq) poll() (prm.CQE, bool) {
	ring := c.p.at(c.buf, int(c.entries)*64)
	b := ring[(c.consumer&(c.entries-1))*64:][:64]
	last := atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[56])))
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], last)
	if word[7]>>4 == byte(prm.CQEInvalid) || uint32(word[7]&1) != c.consumer/c.entries&1 {
		return prm.CQE{}, false
	}
	e, _ := prm.ParseCQE(b)
	c.consumer++
	prm.PutUint32(c.p.at(c.db, 8), c.consumer&0xffffff)
	return e, true
}

// qp is an RC QP that is connected to itself.
type qp struct {
	p      *program
	uar    *uar
	cq     *cq
	handle uint32
	number uint32
	sq, db uint64
	head   uint32
}

const sendBlocks = 64

func (p *program) qp(u *uar, c *cq, pd uint32) *qp {
	p.t.Helper()
	const requests, shift = 32, 6
	buf := p.alloc(requests<<shift + sendBlocks*64)
	q := &qp{p: p, uar: u, cq: c, sq: buf + requests<<shift, db: p.alloc(8)}
	uhw := make(fields, 56)
	uhw.put64(0, buf)
	uhw.put64(8, q.db)
	uhw.put32(16, sendBlocks)
	uhw.put32(20, requests)
	uhw.put32(24, shift)
	uhw.put32(28, 0x402)
	uhw.put32(32, 0x77)
	uhw.put32(36, u.id)
	sizes := make(fields, 20)
	sizes.put32(0, sendBlocks)
	sizes.put32(4, requests)
	sizes.put32(8, 1)
	sizes.put32(12, 1)
	done := p.must(objQP, qpCreate, num(createQPHandle, 0), num(createQPPD, uint64(pd)), num(createQPSendCQ, uint64(c.handle)), num(createQPRecvCQ, uint64(c.handle)),
		p.in(createQPUser, le.AppendUint64(nil, 0xbeef)), p.in(createQPCap, sizes), num(createQPType, uint64(rdma.RC)), p.in(createQPFlags, make([]byte, 4)),
		p.out(createQPAnswerCap, 20), p.out(createQPAnswerNumber, 4), p.in(uhwIn, uhw), p.out(uhwOut, 40))
	q.handle, q.number = uint32(done[0].data), p.got(done, createQPAnswerNumber, 4).u32(0)
	q.modify(rdma.StateInit, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	q.modify(rdma.StateRTR, 0x129181)
	q.modify(rdma.StateRTS, 0x12e01)
	return q
}

func (q *qp) modify(to rdma.State, mask ibv.AttrMask) {
	q.p.t.Helper()
	in := make(fields, 112)
	gid := q.p.dev.adapter.GIDs()[3].GID
	copy(in, gid[:])
	in.put8(24, 3)
	in.put8(30, 1)
	in.put8(31, 1)
	in.put32(64, q.handle)
	in.put32(68, uint32(mask))
	in.put32(76, 7)
	in.put32(80, 7)
	in.put32(84, q.number)
	in.put32(88, 0xf)
	in.put8(96, uint8(to))
	for at, v := range map[int]uint8{98: 3, 101: 8, 102: 8, 103: 1, 104: 1, 105: 14, 106: 7, 107: 7} {
		in.put8(at, v)
	}
	q.p.mustWrite(cmdModifyQP, in, 0)
}

// write posts a signaled RDMA WRITE of 8 bytes to addr. It rings the doorbell if ring is set.
func (q *qp) write(v, addr uint64, rkey uint32, ring bool) {
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b, (q.head&0xffff)<<8|uint32(prm.OpWrite))
	binary.BigEndian.PutUint32(b[4:], q.number<<8|3) // 3 units of 16 bytes
	b[11] = prm.FlagCQUpdate
	binary.BigEndian.PutUint64(b[16:], addr)
	binary.BigEndian.PutUint32(b[24:], rkey)
	binary.BigEndian.PutUint32(b[32:], 0x80000000|8)
	le.PutUint64(b[36:], v)
	copy(q.p.at(q.sq, sendBlocks*64)[q.head%sendBlocks*64:], b)
	q.head++
	prm.PutUint32(q.p.at(q.db, 8)[prm.DoorbellSend:], q.head&0xffff)
	if ring {
		q.uar.ring(blueFlame+int(q.head&1)<<8, binary.BigEndian.Uint64(b))
	}
}

// region registers memory with all access rights and returns its address and key.
func (p *program) region(pd uint32, n int) (addr uint64, key uint32) {
	p.t.Helper()
	addr = p.alloc(n)
	in := make(fields, 40)
	in.put64(8, addr)
	in.put64(16, uint64(n))
	in.put64(24, addr)
	in.put32(32, pd)
	in.put32(36, 0xf)
	return addr, p.mustWrite(cmdRegMR, in, 12).u32(8)
}

// loop sends n packets through the device, and returns the program that sent them.
func loop(t testing.TB, d *Device, n int) *program {
	t.Helper()
	p := newProgram(t, d)
	pd, u := p.pd(), p.uar()
	c := p.cq(u, 16)
	q := p.qp(u, c, pd)
	addr, key := p.region(pd, 64)
	for i := range n {
		q.write(uint64(i), addr, key, true)
		if e := c.wait(); e.Opcode != prm.CQERequester {
			t.Fatalf("completion %d: %+v", i, e)
		}
		if v := p.at(addr, 8).u64(0); v != uint64(i) {
			t.Fatalf("request %d wrote %d", i, v)
		}
	}
	return p
}

// TestTooManyObjects creates a CQ and a QP in a program whose table of objects is full. Both
// fail and leave nothing behind.
func TestTooManyObjects(t *testing.T) {
	p := newProgram(t, newDevice(t))
	pd, u := p.pd(), p.uar()
	c := p.cq(u, 16)
	known, bells := len(p.file.byObject), p.file.bells
	for h := uint32(1000); len(p.file.objects.objects) < mostObjects; h++ {
		p.file.objects.objects[h] = mwObject{}
	}
	uhw := make(fields, 32)
	uhw.put64(0, p.alloc(64*16))
	uhw.put64(8, p.alloc(8))
	uhw.put32(16, 64)
	uhw.put16(24, uint16(u.id))
	if _, errno := p.ioctl(objCQ, cqCreate, num(createCQHandle, 0), p.in(createCQEntries, []byte{15, 0, 0, 0}), num(createCQChannel, uint64(c.descriptor)), p.in(uhwIn, uhw)); errno != unix.ENOMEM {
		t.Errorf("CQ: %v", errno)
	}
	uhw = make(fields, 56)
	uhw.put64(0, p.alloc(64*16))
	uhw.put64(8, p.alloc(8))
	uhw.put32(16, 16)
	uhw.put32(36, u.id)
	if _, errno := p.ioctl(objQP, qpCreate, num(createQPHandle, 0), num(createQPPD, uint64(pd)), num(createQPSendCQ, uint64(c.handle)), num(createQPRecvCQ, uint64(c.handle)), p.in(createQPCap, make([]byte, 20)),
		num(createQPType, uint64(rdma.RC)), p.in(uhwIn, uhw)); errno != unix.ENOMEM {
		t.Errorf("QP: %v", errno)
	}
	if n := len(p.file.byObject); n != known {
		t.Errorf("%d objects are known for their events, %d before", n, known)
	}
	for o := range bells {
		if qps, arms := o.Rung(); qps || !arms {
			t.Errorf("QPs ring the UAR: %t, CQs: %t, want false and true", qps, arms)
		}
	}
}
