package adapter_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// guest is a guest's kernel driver: it makes everything by commands, and its queues lie in
// pages that are not in order.
type guest struct {
	*program
	pdn uint32
	dma uint32 // the key of the PD for physical addresses
	// The QPs' retry count and the exponent of their timeout.
	tries, timeout uint8
	queue          *guestQP
}

const guestPageOffset = 3 // in 64ths of a page

func (g *guest) pages(size int) *scattered {
	p := &scattered{mem: g.mem, offset: guestPageOffset * 64}
	for range (p.offset + size + 4095) / 4096 {
		p.addrs = append([]uint64{g.page()}, p.addrs...)
	}
	return p
}

// page returns a page. No other call returns one of its neighbours.
func (g *guest) page() uint64 { return (g.mem.alloc(3*4096) + 4095) &^ 4095 }

// list appends the pages to a command.
func (p *scattered) list(in []byte) []byte {
	in = in[:0x110]
	for _, a := range p.addrs {
		in = binary.BigEndian.AppendUint64(in, a|3)
	}
	return in
}

// guestCQ is a completion queue of 64 entries.
type guestCQ struct {
	number   uint32
	ring     *scattered
	db       uint64
	size     int
	consumer uint32
}

const guestCQEntries = 64

func (g *guest) newCQ(size int) *guestCQ {
	q := &guestCQ{ring: g.pages(guestCQEntries * size), db: g.mem.alloc(8), size: size}
	for i := range guestCQEntries {
		q.ring.put(i*size, bytes.Repeat([]byte{0xf1}, size))
	}
	in := command(prm.CmdCreateCQ, 0, 0x400)
	prm.CQContext{LogSize: 6, CQE128: size == 128, UAR: testUAR, EQN: testEQ, DBAddr: q.db, PageOffset: guestPageOffset}.Put(in)
	q.number = prm.NumberOf(g.command(q.ring.list(in), 16))
	return q
}

// guestQP is a QP with 64 blocks and 16 receive requests of 64 bytes.
type guestQP struct {
	g      *guest
	cq     *guestCQ
	number uint32
	ring   *scattered
	db     uint64
	recv   int // bytes of the receive queue, which is the first
	head   uint16
	rhead  uint16
}

func (g *guest) newQP(service uint8) *guestQP { return g.createQP(service, 0) }

// createQP makes a QP of the kernel (user 0) or of a program, whose QPs have no fast registration.
func (g *guest) createQP(service uint8, uid uint16) *guestQP {
	size := 64
	if service == prm.QPServiceRC {
		size = 128
	}
	q := &guestQP{g: g, cq: g.newCQ(size), db: g.mem.alloc(8)}
	c := prm.QPContext{Service: service, PD: g.pdn, UAR: testUAR, UserIndex: 0xffffff, SendCQ: q.cq.number, RecvCQ: q.cq.number, LogSQSize: 6, LogRQSize: 4, LogRQStride: 2, DBAddr: q.db, PageOffset: guestPageOffset, FastRegister: uid == 0}
	if service == prm.QPServiceUMR {
		c.PD, c.RQType, c.LogRQSize, c.LogRQStride = 0, prm.RQNone, 0, 0
	} else {
		q.recv = 16 * 64
	}
	q.ring = g.pages(q.recv + 64*64)
	in := command(prm.CmdCreateQP, 0, 0x400)
	prm.PutQP(in, &c)
	q.number = prm.NumberOf(g.command(q.ring.list(in), 16))
	return q
}

func (q *guestQP) move(c prm.Command, ctx *prm.QPContext) {
	q.g.t.Helper()
	q.g.move(q.number, c, ctx)
}

// connect takes the QP to RTS. A QP without a peer has no path.
func (q *guestQP) connect(to *guestQP) {
	q.g.t.Helper()
	if to == nil {
		q.move(prm.CmdRst2InitQP, &prm.QPContext{PD: q.g.pdn, Path: prm.Path{Port: 1}})
		q.move(prm.CmdInit2RTRQP, &prm.QPContext{PD: q.g.pdn})
		q.move(prm.CmdRTR2RTSQP, &prm.QPContext{PD: q.g.pdn})
		return
	}
	q.move(prm.CmdRst2InitQP, &prm.QPContext{Path: prm.Path{Port: 1}, Read: true, Write: true, Atomic: true})
	gid := to.g.dev.GIDs()[3].GID
	q.move(prm.CmdInit2RTRQP, &prm.QPContext{MTU: 3, RemoteQPN: to.number, NextRecvPSN: 7, MinRNRNAK: 1, LogRRAMax: 3, Path: prm.Path{Port: 1, GID: gid, SourceIndex: 3}})
	q.move(prm.CmdRTR2RTSQP, &prm.QPContext{NextSendPSN: 7, RetryCount: q.g.tries, RNRRetry: q.g.tries, LogSRAMax: 3, Path: prm.Path{AckTimeout: q.g.timeout}})
}

// join connects two QPs with each other.
func (q *guestQP) join(to *guestQP) {
	q.connect(to)
	to.connect(q)
}

// write puts a request into the queue. Its index and its QP are filled in.
func (q *guestQP) write(b []byte) {
	b = bytes.Clone(b)
	b = append(b, make([]byte, int(b[7]&0x3f)*16-len(b))...)
	binary.BigEndian.PutUint16(b[1:], q.head)
	binary.BigEndian.PutUint32(b[4:], q.number<<8|uint32(b[7]))
	for b = append(b, make([]byte, -len(b)&63)...); len(b) > 0; b = b[64:] {
		q.ring.put(q.recv+64*int(q.head%64), b[:64])
		q.head++
	}
}

// post writes requests into the queue and delivers the doorbell.
func (q *guestQP) post(requests ...[]byte) {
	for _, b := range requests {
		q.write(b)
	}
	q.g.mem.put32(q.db+4, uint32(q.head))
	q.g.ctx.Ring(prm.UARBlue, uint64(q.number)<<8)
}

func (q *guestQP) postRecv(d prm.Data) {
	b := make([]byte, 64)
	prm.PutData(b, d)
	prm.PutData(b[16:], prm.Data{LKey: prm.InvalidLKey})
	q.ring.put(64*int(q.rhead%16), b)
	q.rhead++
	q.g.mem.put32(q.db, uint32(q.rhead))
}

// next returns the next completion, or nil.
func (q *guestCQ) next(g *guest) []byte {
	b := q.ring.get(int(q.consumer%guestCQEntries+1)*q.size-64, 64)
	if b[63]>>4 == byte(prm.CQEInvalid) || uint32(b[63]&1) != q.consumer/guestCQEntries&1 {
		return nil
	}
	q.consumer++
	g.mem.put32(q.db, q.consumer)
	return b
}

func (q *guestQP) wait() []byte {
	q.g.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
		if b := q.cq.next(q.g); b != nil {
			return b
		}
	}
	q.g.t.Fatal("no completion")
	return nil
}

// done waits for a completion and compares its kind.
func (q *guestQP) done(want prm.CQEOpcode) prm.CQE {
	q.g.t.Helper()
	c, _ := prm.ParseCQE(q.wait())
	if c.Opcode != want {
		q.g.t.Fatalf("completion %+v, want kind %d", c, want)
	}
	return c
}

// fails waits for the completion of a send request, which must have failed with a syndrome.
func (q *guestQP) fails(what string, want prm.Syndrome) {
	q.g.t.Helper()
	if c := q.done(prm.CQERequesterErr); c.Syndrome != want {
		q.g.t.Errorf("%s: %+v, want syndrome %#x", what, c, want)
	}
}

// newMKey makes a key with an mkey context.
func (g *guest) newMKey(mode uint8, octowords uint32, change func(set func(off, n int, v uint64))) uint32 {
	g.t.Helper()
	in, set := mkeyCommand(272, g.pdn, mode)
	set(0x14, 2, 3)
	if mode == prm.AccessModePA {
		set(0x38, 8, 3)
		set(0x60, 1, 1)
	} else {
		set(0x01, 1, 1)
		set(0x10, 1, 1)
		set(0x1a0, 32, uint64(octowords))
	}
	if change != nil {
		change(set)
	}
	number := prm.NumberOf(g.command(in, 16)) << 8
	if mode == prm.AccessModePA {
		number |= 3
	}
	return number
}

// startGuest starts a guest with an unconnected QP.
func startGuest(t testing.TB, net *inproc.Network, addr netip.Addr) *guest {
	t.Helper()
	g := &guest{program: start(t, net, addr, options{guest: true}), tries: 7, timeout: 14}
	g.pdn = g.pd.Number()
	g.dma = g.newMKey(prm.AccessModePA, 0, nil)
	g.queue = g.newQP(prm.QPServiceRC)
	return g
}

// guestPair starts two guests with connected QPs.
func guestPair(t testing.TB) (a, b *guest) {
	t.Helper()
	a, b = unconnected(t)
	a.queue.join(b.queue)
	return a, b
}

// unconnected starts two guests whose QPs are in RESET.
func unconnected(t testing.TB) (a, b *guest) {
	t.Helper()
	net := inproc.NewNetwork(nil)
	return startGuest(t, net, testAddr), startGuest(t, net, netip.MustParseAddr("10.0.0.2"))
}

// recorded decodes a request in hexadecimal.
func recorded(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	fatal.If(t, err)
	return b
}

func put32(b []byte, at int, v uint32) { binary.BigEndian.PutUint32(b[at:], v) }
func put64(b []byte, at int, v uint64) { binary.BigEndian.PutUint64(b[at:], v) }

// TestGuestRegion registers a user's region as mlx5_ib does, on the QP for UMRs with a list in
// the guest's memory, writes through it from the peer, and frees it.
func TestGuestRegion(t *testing.T) {
	a, b := guestPair(t)
	umr := a.newQP(prm.QPServiceUMR)
	umr.connect(nil)
	own := prm.NumberOf(a.command(command(prm.CmdAllocPD, 0, 16), 16))
	key := a.newMKey(prm.AccessModeMTT, 8, func(set func(off, n int, v uint64)) { set(0x68, 24, uint64(own)) })
	// Three pages, at the virtual addresses from 0x55f94d50c878 on.
	const start, length = 0x55f94d50c878, 4096 + 3000
	var pages []uint64
	list := a.mem.alloc(64)
	for i := range uint64(3) {
		pages = append(pages, a.page())
		a.mem.put(list+8*i, binary.BigEndian.AppendUint64(nil, pages[i]|3))
	}
	enable := recorded(t, `00000025 0000a409 00000028 0000a500 20000000 00020000 00000000 203e20c3
		00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00003c77 ffffff00 00000000 000000a0
		000055f9 4d50c878 00000000 00000000 00000000 00000000 00000000 00000000
		00000000 00000000 0000000c 00000000 00000040 00008d03 00000000 053a4000`)
	put32(enable, 12, key)
	put32(enable, 16+48+4, 0xffffff77) // the tag of the new use
	put32(enable, 16+48+12, a.pdn)
	put64(enable, 16+48+24, length)
	put32(enable, 128+4, a.dma)
	put64(enable, 128+8, list)
	umr.post(enable)
	umr.done(prm.CQERequester)
	umr.post(enable)
	umr.fails("a key that is in use was enabled", prm.SyndromeMWBind)
	umr = a.newQP(prm.QPServiceUMR)
	umr.connect(nil)

	key |= 0x77
	from := b.mem.alloc(length)
	want := make([]byte, length)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	b.mem.put(from, want)
	b.queue.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(start, key).data(from, length, b.dma).sized())
	b.queue.done(prm.CQERequester)
	var got []byte
	for i, p := range pages {
		skip := 0
		if i == 0 {
			skip = start % 4096
		}
		got = append(got, a.mem.get(p+uint64(skip), 4096-skip)...)
	}
	if !bytes.Equal(got[:length], want) || !bytes.Equal(got[length:], make([]byte, len(got)-length)) {
		t.Fatal("the peer's WRITE is not what the pages hold")
	}
	b.queue.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(start+100, key).data(from, 5000, b.dma).sized())
	b.queue.done(prm.CQERequester)
	if !bytes.Equal(b.mem.get(from, 5000), want[100:5100]) {
		t.Fatal("the peer's READ is not what the pages hold")
	}

	// Deregistration: the key goes back to the driver's PD.
	free := recorded(t, "00000025 0000a408 00000028 0000a500 80000000 00000000 00000000 20000080")
	free = append(free, make([]byte, 128-len(free))...)
	put32(free, 12, key)
	free[64] = 0x40
	put32(free, 64+12, own)
	umr.post(free, free)
	umr.done(prm.CQERequester)
	umr.done(prm.CQERequester)
	b.queue.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(start, key).data(from, 8, b.dma).sized())
	b.queue.fails("a READ of a freed region", prm.SyndromeRemoteAccess)
}

// A fast registration (REG_MR) of kernel 6.12.107's nvme-rdma: one page, its list inline.
const recordedRegMR = `00000025 0000cd0c 00000060 0000ce26
	a0000000 00040000 00000000 209e2143 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
	0000bd00 ffffff26 00000000 01000000 00000000 0474c000 00000000 00000400 00000000 00000000 00000000 00000000
	00000000 00000004 0000000c 00000000 00000000 0474c003 00000000 00000000 00000000 00000000 00000000 00000000
	00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000`

// TestGuestFastRegistration registers a page as a kernel's protocol does, and lets the peer
// free it by SEND with invalidate.
func TestGuestFastRegistration(t *testing.T) {
	a, b := guestPair(t)
	key := a.newMKey(prm.AccessModeMTT, 260, nil)
	page, from := a.page(), b.mem.alloc(1024)
	b.mem.put(from, bytes.Repeat([]byte{0x5c}, 1024))
	register := func(tag uint32, remoteInv byte) {
		reg := recorded(t, recordedRegMR)
		put32(reg, 12, key|tag)
		put32(reg, 68, 0xffffff00|tag)
		reg[76] = remoteInv
		put64(reg, 80, page+0x100)
		put64(reg, 128, page|3)
		reg[11] |= prm.FlagCQUpdate
		a.queue.post(reg)
		a.queue.done(prm.CQERequester)
	}
	access := func(op prm.Opcode, addr uint64, tag, n uint32) []byte {
		return newWQE(op, 0, 0, prm.FlagCQUpdate).raddr(addr, key|tag).data(from, n, b.dma).sized()
	}
	for tag := range uint32(3) {
		register(tag, 1)
		b.queue.post(access(prm.OpWrite, page+0x100, tag, 1024))
		b.queue.done(prm.CQERequester)
		if got := a.mem.get(page, 4096); !bytes.Equal(got[0x100:0x500], b.mem.get(from, 1024)) || got[0xff] != 0 || got[0x500] != 0 {
			t.Fatal("the page has other bytes")
		}
		a.queue.postRecv(prm.Data{Length: 64, LKey: a.dma, Addr: a.mem.alloc(64)})
		b.queue.post(newWQE(prm.OpSendInv, 0, key|tag, prm.FlagCQUpdate).data(from, 64, b.dma).sized())
		if c := a.queue.done(prm.CQERecvInv); c.Imm != key|tag {
			t.Fatalf("freed key %#x, want %#x", c.Imm, key|tag)
		}
		b.queue.done(prm.CQERequester)
	}
	b.queue.post(access(prm.OpRead, page+0x100, 2, 8))
	b.queue.fails("a READ through a freed key", prm.SyndromeRemoteAccess)
	for _, test := range []struct {
		name   string
		access func() []byte
	}{
		{"before the key", func() []byte { return access(prm.OpRead, page+0xff, 9, 8) }},
		{"behind the key", func() []byte { return access(prm.OpWrite, page+0x100+1020, 9, 8) }},
		{"another tag", func() []byte { return access(prm.OpRead, page+0x100, 8, 8) }},
		{"may not be freed", func() []byte {
			a.queue.postRecv(prm.Data{Length: 64, LKey: a.dma, Addr: from})
			return newWQE(prm.OpSendInv, 0, key|9, prm.FlagCQUpdate).data(from, 64, b.dma).sized()
		}},
	} {
		a, b = guestPair(t)
		key = a.newMKey(prm.AccessModeMTT, 260, nil)
		page, from = a.page(), b.mem.alloc(1024)
		register(9, 0)
		b.queue.post(test.access())
		if c := b.queue.done(prm.CQERequesterErr); c.Syndrome != prm.SyndromeRemoteAccess && c.Syndrome != prm.SyndromeRemoteOp && c.Syndrome != prm.SyndromeRemoteInvalid && (test.name != "may not be freed" || c.Syndrome != prm.SyndromeRetryExceeded) {
			t.Errorf("%s: %+v", test.name, c)
		}
	}
}

// TestGuestKeyLists makes keys whose lists come in parts, in the command that makes the key,
// or as a list of keys.
func TestGuestKeyLists(t *testing.T) {
	a, b := guestPair(t)
	umr := a.newQP(prm.QPServiceUMR)
	umr.connect(nil)
	const pages = 24
	var list []byte
	var addrs []uint64
	for range pages {
		addrs = append(addrs, a.page())
		list = binary.BigEndian.AppendUint64(list, addrs[len(addrs)-1]|3)
	}
	part := func(key uint32, flags byte, at, n int, last bool) []byte {
		w := newWQE(prm.OpUMR, 0, key, 0x28)
		w.b = append(w.b, make([]byte, 112)...)
		w.b[16] = flags
		put32(w.b, 20, uint32(n)<<16|uint32(at))
		if last {
			put64(w.b, 24, 0x203e20c3)
		}
		w.b[66] = 0x3c
		put32(w.b, 68, 0xffffff00)
		put32(w.b, 76, a.pdn)
		put64(w.b, 80, 0x7000)
		put64(w.b, 88, pages*4096)
		w.b[123] = 12
		where := a.mem.alloc(16 * n)
		a.mem.put(where, list[16*at:][:16*n])
		return w.data(where, uint32(16*n), a.dma).sized()
	}
	check := func(what string, key uint32, start uint64) {
		t.Helper()
		from := b.mem.alloc(pages * 4096)
		want := make([]byte, pages*4096)
		for i := range want {
			want[i] = byte(i>>12*37 + i + int(key))
		}
		b.mem.put(from, want)
		b.queue.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(start, key).data(from, pages*4096, b.dma).sized())
		b.queue.done(prm.CQERequester)
		for i, p := range addrs {
			if !bytes.Equal(a.mem.get(p, 4096), want[4096*i:][:4096]) {
				t.Fatalf("%s: page %d has other bytes", what, i)
			}
		}
	}
	key := a.newMKey(prm.AccessModeMTT, pages/2, nil)
	umr.post(part(key, 0x20, 0, 4, false), part(key, 0x30, 4, 6, false), part(key, 0x30, 10, 2, true))
	for range 3 {
		umr.done(prm.CQERequester)
	}
	check("a list in parts", key, 0x7000)
	umr.post(part(a.newMKey(prm.AccessModeMTT, 4, nil), 0x30, 4, 2, false))
	umr.fails("a list beyond the key's room", prm.SyndromeMWBind)

	in, set := mkeyCommand(0x110, a.pdn, prm.AccessModeMTT)
	set(0x12, 4, 0xf)
	set(0x38, 8, 0x5)
	set(0x80, 64, 0x123456000)
	set(0xc0, 64, pages*4096)
	set(0x1a0, 32, pages/2)
	set(0x1da, 6, 12)
	prm.SetBits(in, 0x300, 32, pages/2)
	made := prm.NumberOf(a.command(append(in, list...), 16))<<8 | 5
	check("a list in the command", made, 0x123456000)

	// A key of keys: the second half of the key above, then its first.
	klm := a.newMKey(prm.AccessModeKLM, 4, nil)
	w := newWQE(prm.OpUMR, 0, klm, 0x28)
	w.b = append(w.b, make([]byte, 112)...)
	w.b[16] = 0x80
	put32(w.b, 20, 4<<16)
	put64(w.b, 24, 0x203e2041)
	w.b[66] = 0x3c
	put32(w.b, 68, 0xffffff00)
	put64(w.b, 80, 0x1000)
	put64(w.b, 88, pages*4096)
	w.data(0x123456000+pages*2048, pages*2048, made).data(0x123456000, pages*2048, made).data(0, 0, 0).data(0, 0, 0)
	a.queue.post(w.sized())
	a.queue.done(prm.CQERequester)
	addrs = append(addrs[pages/2:], addrs[:pages/2]...)
	check("a list of keys", klm, 0x1000)
}

// TestGuestListMemory gives a key parts of a list by several QPs. Only the key keeps the list: the QPs'
// requests have ended.
func TestGuestListMemory(t *testing.T) {
	a, _ := unconnected(t)
	const octowords, qps = 1 << 18, 8
	key := a.newMKey(prm.AccessModeMTT, octowords, nil)
	w := newWQE(prm.OpUMR, 0, key, 0x28)
	w.b = append(w.b, make([]byte, 112)...)
	w.b[16] = 0x30
	put32(w.b, 20, 4<<16|(octowords-4)&0xffff)
	put32(w.b, 32, (octowords-4)>>16)
	request := w.data(a.mem.alloc(64), 64, a.dma).sized()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var queues []*guestQP
	for range qps {
		queues = append(queues, a.newQP(prm.QPServiceUMR))
		queues[len(queues)-1].connect(nil)
	}
	before := heap()
	for _, q := range queues {
		q.post(request)
		q.done(prm.CQERequester)
	}
	if n, list := heap()-before, int64(octowords*prm.DataSegSize); n > 2*list {
		t.Errorf("a list of %d bytes takes %d bytes after %d QPs had parts of it", list, n, qps)
	}
	runtime.KeepAlive(queues)
}

// A driver that takes a queue pair down waits until a request is flushed that it posts after the
// state changed to ERR. No register is written for a receive request.
func TestGuestDrain(t *testing.T) {
	a, _ := guestPair(t)
	q := a.queue
	q.move(prm.CmdToErrQP, nil)
	for range 3 {
		q.postRecv(prm.Data{})
		if c := q.done(prm.CQERecvErr); c.Syndrome != prm.SyndromeFlush {
			t.Errorf("syndrome %#x, want a flushed request", c.Syndrome)
		}
	}
	q.move(prm.CmdToRstQP, nil)
	q.rhead = 0
	a.mem.put32(q.db, 0)
	q.move(prm.CmdRst2InitQP, &prm.QPContext{Path: prm.Path{Port: 1}})
	q.postRecv(prm.Data{})
	q.move(prm.CmdToErrQP, nil)
	q.done(prm.CQERecvErr)
	q.postRecv(prm.Data{})
	q.done(prm.CQERecvErr)
}

// A command for a QP in RTS leaves the QP for UMRs there: its next request is executed.
func TestGuestQPStaysInRTS(t *testing.T) {
	a, _ := unconnected(t)
	q := a.newQP(prm.QPServiceUMR)
	q.connect(nil)
	q.move(prm.CmdRTS2RTSQP, &prm.QPContext{PD: a.pdn})
	q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate).sized())
	q.done(prm.CQERequester)
}

// A program of a guest has a QP and the key of a region, which its kernel has given pages. A request
// of the program does not give it other ones, and uses no PSV of another protection domain.
func TestGuestPrograms(t *testing.T) {
	a, b := guestPair(t)
	key := a.newMKey(prm.AccessModeMTT, 260, nil)
	page := a.page()
	reg := recorded(t, recordedRegMR)
	put32(reg, 12, key|1)
	put32(reg, 68, 0xffffff01)
	put64(reg, 80, page)
	put64(reg, 128, page|3)
	reg[11] |= prm.FlagCQUpdate
	in := command(prm.CmdAllocPD, 0, 16)
	other := prm.NumberOf(a.command(in, 16))
	in = command(prm.CmdCreatePSV, 0, 16)
	prm.SetBits(in, 0x40, 4, 1)
	prm.SetBits(in, 0x48, 24, uint64(other))
	foreign := uint32(prm.Bits(a.command(in, 32), 0x88, 24))
	set := newWQE(prm.OpSetPSV, 0, 0, prm.FlagCQUpdate)
	set.b = append(binary.BigEndian.AppendUint32(set.b, foreign), make([]byte, 12)...)
	for _, test := range []struct {
		name    string
		request []byte
		want    prm.Syndrome
	}{
		{"pages", reg, prm.SyndromeMWBind}, {"another domain's PSV", set.sized(), prm.SyndromeLocalQPOp},
	} {
		q, peer := a.createQP(prm.QPServiceRC, 7), b.newQP(prm.QPServiceRC)
		q.join(peer)
		q.post(test.request)
		q.fails(test.name, test.want)
	}
	for mode, ok := range map[uint8]bool{prm.AccessModePA: false, prm.AccessModeMTT: false, prm.AccessModeKLM: true, prm.AccessModeKSM: true} {
		in := command(prm.CmdAllocPD, 0, 16)
		out, err := a.ctx.Exec(7, in, 16)
		fatal.If(t, err)
		in, set := mkeyCommand(272, prm.NumberOf(out), mode)
		set(0x01, 1, 1)
		set(0x10, 1, 1)
		set(0x1a0, 32, 4)
		if _, err := a.ctx.Exec(7, in, 16); (err == nil) != ok {
			t.Errorf("a program makes a key of access mode %d: %v", mode, err)
		}
	}
}

// TestCountQP counts the writes that two QPs of a guest take in the set of one of them.
func TestCountQP(t *testing.T) {
	a, b := guestPair(t)
	var first, second roce.CounterSet
	b.ctx.CountQP(b.queue.number, &first)
	const remoteWrite = 0x12 // in an mkey context
	key, at := b.newMKey(prm.AccessModePA, 0, func(set func(off, n int, v uint64)) { set(remoteWrite, 1, 1) }), b.mem.alloc(64)
	write := func() {
		a.queue.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, key).inline([]byte("x")).sized())
		a.queue.done(prm.CQERequester)
	}
	for range 3 {
		write()
	}
	b.ctx.CountQP(b.queue.number, &second)
	write()
	port := b.dev.Engine().Port().Counters()
	if n, m := first.Counters(), second.Counters(); n.WriteRequests != 3 || m.WriteRequests != 1 || port.WriteRequests != 4 || n.RecvPackets != 0 {
		t.Errorf("%d and %d writes in the sets, %d in the port", n.WriteRequests, m.WriteRequests, port.WriteRequests)
	}
}
