package adapter_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// program is a program with a driver, as far as tests need one: memory from address base
// on, queues that it writes and completions that it polls, as libmlx5 does.
type program struct {
	t   testing.TB
	dev *adapter.Device
	ctx *adapter.Context
	mem *memory
	uar []byte
	u   *adapter.UAR
	pd  *adapter.PD

	mu     sync.Mutex
	fired  map[*adapter.CQ]int
	events chan asyncEvent
	told   chan struct{} // if not nil, Async returns when it is closed
	comp   chan *adapter.CQ
}

type asyncEvent struct {
	typ rdma.EventType
	obj any
}

const (
	base    = 0x7f00_0000_0000
	testUAR = 7 // the number of the program's UAR
	testEQ  = 1
)

// memory is a program's memory, which is a slice. With shared, queues are mapped.
type memory struct {
	mu      sync.Mutex
	bytes   []byte
	next    int
	shared  bool
	counted [2]uint64 // a range whose batches are counted
	batches int
	holes   [][2]uint64 // ranges that were unmapped
	ended   bool        // the program has ended: nothing can be reached
	absent  bool        // the program may use unmapped memory: its accesses are dropped
	copied  func()      // called when the device has read a batch
	between func()      // called when the device has read a piece of a batch
}

func (m *memory) span(addr uint64, n int) ([]byte, error) {
	if m.ended {
		return nil, syscall.ESRCH
	}
	if addr < base || addr-base > uint64(len(m.bytes)) || uint64(n) > uint64(len(m.bytes))-(addr-base) {
		return nil, syscall.EFAULT
	}
	for _, h := range m.holes {
		if addr < h[1] && addr+uint64(n) > h[0] {
			return nil, syscall.EFAULT
		}
	}
	return m.bytes[addr-base:][:n], nil
}

func (m *memory) Read(addr uint64, dst []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.span(addr, len(dst))
	copy(dst, b)
	return err
}

func (m *memory) Write(addr uint64, src []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.span(addr, len(src))
	copy(b, src)
	return err
}

func (m *memory) ReadV(vecs []adapter.Vec) error {
	m.mu.Lock()
	if m.counted[0] <= vecs[0].Addr && vecs[0].Addr < m.counted[1] {
		m.batches++
	}
	m.mu.Unlock()
	for _, v := range vecs {
		if err := m.Read(v.Addr, v.Buf); err != nil {
			return err
		}
		if m.between != nil {
			m.between()
		}
	}
	if m.copied != nil {
		m.copied()
	}
	return nil
}

func (m *memory) WriteV(vecs []adapter.Vec) error {
	for _, v := range vecs {
		if err := m.Write(v.Addr, v.Buf); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Map(addr uint64, n int) []byte {
	if !m.shared {
		return nil
	}
	b, _ := m.span(addr, n)
	return b
}

func (m *memory) unmap(addr uint64, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holes = append(m.holes, [2]uint64{addr, addr + uint64(n)})
}

// alloc returns the address of n bytes, aligned to 64.
func (m *memory) alloc(n int) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := (m.next + 63) &^ 63
	m.next = at + n
	if m.next > len(m.bytes) {
		panic("the program's memory is used up")
	}
	return base + uint64(at)
}

func (m *memory) get(addr uint64, n int) []byte {
	b := make([]byte, n)
	if err := m.Read(addr, b); err != nil && !m.absent {
		panic(err)
	}
	return b
}

func (m *memory) put(addr uint64, b []byte) {
	if err := m.Write(addr, b); err != nil && !m.absent {
		panic(err)
	}
}

func (m *memory) put32(addr uint64, v uint32) { m.put(addr, binary.BigEndian.AppendUint32(nil, v)) }

// scattered are pages of memory in the order of a queue, which begins at an offset in the first page.
type scattered struct {
	mem    *memory
	addrs  []uint64
	offset int
}

func (p *scattered) each(at int, b []byte, f func(addr uint64, b []byte)) {
	for at += p.offset; len(b) > 0; {
		n := min(len(b), 4096-at%4096)
		f(p.addrs[at/4096]+uint64(at%4096), b[:n])
		at, b = at+n, b[n:]
	}
}

func (p *scattered) put(at int, b []byte) { p.each(at, b, p.mem.put) }

func (p *scattered) get(at, n int) []byte {
	b := make([]byte, n)
	p.each(at, b, func(addr uint64, b []byte) { copy(b, p.mem.get(addr, len(b))) })
	return b
}

// options of a test's device.
type options struct {
	shared bool
	store  *dek.Store

	singleBlock bool // little-endian tweaks
	tracer      adapter.Tracer

	adapterReports bool
	guest          bool // the program is a guest's kernel
	inside         bool // packets between QPs of the device pass in memory, as they do under softmkey run

	wrap func(packetconn.Conn) packetconn.Conn // may be nil
}

var testAddr = netip.MustParseAddr("10.0.0.1")

// start opens a device on a network and a program on it.
func start(t testing.TB, net *inproc.Network, addr netip.Addr, o options) *program {
	t.Helper()
	listening, err := net.Listen(netip.AddrPortFrom(addr, 4791))
	fatal.If(t, err)
	conn := packetconn.Conn(listening)
	if o.wrap != nil {
		conn = o.wrap(conn)
	}
	dev, err := adapter.Open(adapter.Config{Addr: addr, Conn: conn, Transport: &roce.Options{Inside: o.inside}, Tracer: o.tracer,
		Options: adapter.Options{KeyStore: o.store, SingleBlock: o.singleBlock, AdapterReports: o.adapterReports}})
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close the device: %v", err)
		}
	})
	return open(t, dev, o)
}

func open(t testing.TB, dev *adapter.Device, o options) *program {
	t.Helper()
	p := &program{
		t: t, dev: dev, mem: &memory{bytes: make([]byte, 8<<20), shared: o.shared}, uar: make([]byte, prm.UARSize),
		fired: map[*adapter.CQ]int{}, events: make(chan asyncEvent, 1024), comp: make(chan *adapter.CQ, 1024),
	}
	p.ctx = dev.NewContext(p.mem, p)
	if o.guest {
		p.ctx = dev.NewGuest(p.mem, nil, p)
	}
	t.Cleanup(func() {
		if err := p.ctx.Close(); err != nil {
			t.Errorf("closing the context: %v", err)
		}
	})
	var err error
	if p.u, err = p.ctx.NewUAR(testUAR, p.uar); err != nil {
		t.Fatal(err)
	}
	p.ctx.AddEQ(testEQ)
	if p.pd, err = p.ctx.AllocPD(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *program) Completion(cq *adapter.CQ) {
	p.mu.Lock()
	p.fired[cq]++
	p.mu.Unlock()
	select {
	case p.comp <- cq:
	default: // a program that fetches no events
	}
}

func (p *program) Async(t rdma.EventType, obj any) {
	select {
	case p.events <- asyncEvent{t, obj}:
	default:
	}
	if p.told != nil {
		<-p.told
	}
}

// cq is a completion queue as the driver sees it.
type cq struct {
	*adapter.CQ
	p        *program
	buf, db  uint64
	entries  uint32
	size     int
	consumer uint32
	sn       uint32
}

func (p *program) cq(entries int, change func(*adapter.CQAttr)) *cq {
	p.t.Helper()
	c := &cq{p: p, entries: uint32(entries), size: 64}
	a := adapter.CQAttr{Entries: entries, CQESize: 64, UAR: p.u, Channel: true}
	if change != nil {
		change(&a)
		c.size = a.CQESize
	}
	c.buf, c.db = p.mem.alloc(entries*a.CQESize), p.mem.alloc(8)
	c.clear()
	a.Ring, a.DB = adapter.Range(p.mem, c.buf), adapter.Range(p.mem, c.db)
	var err error
	if c.CQ, err = p.ctx.CreateCQ(a); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// clear marks all entries invalid, as the driver does.
func (c *cq) clear() {
	for i := range c.entries {
		c.p.mem.put(c.buf+uint64(int(i+1)*c.size-1), []byte{0xf1})
	}
}

// next returns the next entry that is the program's, or nil.
func (c *cq) next() []byte {
	off := c.buf + uint64(int(c.consumer&(c.entries-1))*c.size+c.size-64)
	b := c.p.mem.get(off, 64)
	if b[63]>>4 == byte(prm.CQEInvalid) || uint32(b[63]&1) != c.consumer/c.entries&1 {
		return nil
	}
	c.consumer++
	c.p.mem.put32(c.db, c.consumer&0xffffff)
	return b
}

// wait polls the next completion, and works the program's doorbells meanwhile.
func (c *cq) wait() []byte {
	c.p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Microsecond) {
		c.p.ctx.Poll()
		if b := c.next(); b != nil {
			return b
		}
	}
	c.p.t.Fatal("no completion")
	return nil
}

func (c *cq) waitCQE() prm.CQE {
	c.p.t.Helper()
	b := c.wait()
	cqe, _ := prm.ParseCQE(b)
	return cqe
}

// arm asks for an event, as the driver does.
func (c *cq) arm(solicited bool) {
	w := prm.Arm{Sequence: uint8(c.sn & 3), Solicited: solicited, CI: c.consumer & 0xffffff}.Word()
	c.p.mem.put32(c.db+4, w)
	c.p.ring(prm.UARArmCQ, uint64(w)<<32|uint64(c.Number()))
}

// ring writes a doorbell register.
func (p *program) ring(off int, v uint64) { store64(p.uar[off:], v) }

// qp is a QP as the driver sees it.
type qp struct {
	*adapter.QP
	p            *program
	send, recv   *cq
	rq, sq, db   uint64
	blocks, reqs uint32
	shift        uint32
	head         uint16 // one after the last block
	rhead        uint16
	bf           int
	reads        uint8 // max_rd_atomic
}

func (p *program) qp(send, recv *cq, change func(*adapter.QPAttr)) *qp {
	p.t.Helper()
	q := &qp{p: p, send: send, recv: recv, blocks: 64, reqs: 32, shift: 6, reads: 8}
	a := adapter.QPAttr{Type: rdma.RC, PD: p.pd, SendCQ: send.CQ, RecvCQ: recv.CQ, SQCount: q.blocks, RQCount: q.reqs, RQShift: q.shift, UIDX: 0x1234, UAR: p.u}
	if change != nil {
		change(&a)
		q.blocks, q.reqs, q.shift = a.SQCount, a.RQCount, a.RQShift
	}
	q.rq = p.mem.alloc(int(q.reqs<<q.shift) + int(q.blocks)*64)
	q.sq = q.rq + uint64(q.reqs<<q.shift)
	q.db = p.mem.alloc(8)
	p.mem.put(q.db, make([]byte, 8))
	a.RQ, a.SQ, a.DB = adapter.Range(p.mem, q.rq), adapter.Range(p.mem, q.sq), adapter.Range(p.mem, q.db)
	var err error
	if q.QP, err = p.ctx.CreateQP(a); err != nil {
		p.t.Fatal(err)
	}
	return q
}

// rc makes an RC QP with CQs of its own.
func (p *program) rc() *qp {
	p.t.Helper()
	return p.qp(p.cq(64, nil), p.cq(64, nil), nil)
}

// loopback makes a QP with the CQ for both of its queues, connected to itself.
func (c *cq) loopback() *qp {
	c.p.t.Helper()
	q := c.p.qp(c, c, nil)
	q.connect(q)
	return q
}

func (q *qp) modify(a adapter.QPModify, mask ibv.AttrMask) {
	q.p.t.Helper()
	fatal.If(q.p.t, q.Modify(&a, mask))
}

const allAccess = 0xf

// connect takes an RC QP to RTS, connected to another.
func (q *qp) connect(to *qp) {
	q.p.t.Helper()
	q.toRTR(to, 3)
	q.toRTS(adapter.QPModify{Timeout: 18, RetryCnt: 7, RNRRetry: 7})
}

// join connects two RC QPs with each other.
func (q *qp) join(to *qp) {
	q.p.t.Helper()
	q.connect(to)
	to.connect(q)
}

// toRTR takes an RC QP from RESET to RTR. Both ends have the address with an index in their GID tables.
func (q *qp) toRTR(to *qp, index uint8) {
	q.p.t.Helper()
	q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1, AccessFlags: allAccess}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
	q.modify(adapter.QPModify{
		State: rdma.StateRTR, PathMTU: 3, DestQPN: to.Number(), RQPSN: 7, MaxDestRdAtomic: 8, MinRNRTimer: 1,
		AV: adapter.AHAttr{DGID: to.p.dev.GIDs()[index].GID, SGIDIndex: index, IsGlobal: true, Port: 1},
	}, 0x129181)
}

// toRTS takes a QP from RTR to RTS, with the timeout and the counts of m.
func (q *qp) toRTS(m adapter.QPModify) {
	q.p.t.Helper()
	m.State, m.SQPSN, m.MaxRdAtomic = rdma.StateRTS, 7, q.reads
	q.modify(m, 0x12e01)
}

// wqe is an entry of a send queue while it is built.
type wqe struct {
	b     []byte
	flags uint8
}

func newWQE(op prm.Opcode, opmod uint8, imm uint32, flags uint8) *wqe {
	w := &wqe{b: make([]byte, 16), flags: flags}
	binary.BigEndian.PutUint32(w.b, uint32(opmod)<<24|uint32(op))
	w.b[11] = flags
	binary.BigEndian.PutUint32(w.b[12:], imm)
	return w
}

func (w *wqe) raddr(addr uint64, rkey uint32) *wqe {
	w.b = binary.BigEndian.AppendUint64(w.b, addr)
	w.b = binary.BigEndian.AppendUint32(w.b, rkey)
	w.b = append(w.b, 0, 0, 0, 0)
	return w
}

func (w *wqe) u64(v ...uint64) *wqe {
	for _, x := range v {
		w.b = binary.BigEndian.AppendUint64(w.b, x)
	}
	return w
}

func (w *wqe) data(addr uint64, n, lkey uint32) *wqe {
	var d [16]byte
	prm.PutData(d[:], prm.Data{Length: n, LKey: lkey, Addr: addr})
	w.b = append(w.b, d[:]...)
	return w
}

func (w *wqe) inline(data []byte) *wqe {
	w.b = binary.BigEndian.AppendUint32(w.b, 0x80000000|uint32(len(data)))
	w.b = append(w.b, data...)
	return w.pad(16)
}

func (w *wqe) bytes(b ...byte) *wqe { w.b = append(w.b, b...); return w }

func (w *wqe) pad(n int) *wqe {
	for len(w.b)%n != 0 {
		w.b = append(w.b, 0)
	}
	return w
}

// sized returns the entry with its size, for a queue that fills in the rest.
func (w *wqe) sized() []byte {
	b := slices.Clone(w.b)
	b[7] = byte((len(b) + 15) / 16)
	return b
}

// finish returns the blocks of an entry for an index of a QP's queue.
func (w *wqe) finish(qpn uint32, index uint16) []byte {
	b := slices.Clone(w.b)
	binary.BigEndian.PutUint32(b, binary.BigEndian.Uint32(b)|uint32(index)<<8)
	binary.BigEndian.PutUint32(b[4:], qpn<<8|uint32((len(b)+15)/16))
	return append(b, make([]byte, -len(b)&63)...)
}

// post writes entries into the send queue and rings once. It returns the index of the
// last one.
func (q *qp) post(ws ...*wqe) (index uint16) {
	for _, w := range ws {
		index = q.head
		for b := w.finish(q.Number(), q.head); len(b) > 0; b = b[64:] {
			q.p.mem.put(q.sq+uint64(uint32(q.head)&(q.blocks-1))*64, b[:64])
			q.head++
		}
	}
	q.p.mem.put32(q.db+4, uint32(q.head))
	q.p.ring(0x800+q.bf, uint64(q.head)<<32|uint64(q.Number()))
	q.bf ^= 0x100
	return index
}

// done waits for the completion of a send request, which must have succeeded.
func (q *qp) done() {
	q.p.t.Helper()
	if c := q.send.waitCQE(); c.Opcode != prm.CQERequester {
		q.p.t.Fatalf("completion %+v", c)
	}
}

// fails waits for the completion of a send request, which must have failed with a syndrome.
func (q *qp) fails(what string, want prm.Syndrome) {
	q.p.t.Helper()
	if c := q.send.waitCQE(); c.Opcode != prm.CQERequesterErr || c.Syndrome != want {
		q.p.t.Errorf("%s: %+v, want syndrome %#x", what, c, want)
	}
}

// postRecv puts a receive request into the queue. Nothing is rung.
func (q *qp) postRecv(sges ...prm.Data) {
	at := q.rq + uint64(uint32(q.rhead)&(q.reqs-1)<<q.shift)
	b := make([]byte, 1<<q.shift)
	for i, s := range sges {
		prm.PutData(b[16*i:], s)
	}
	if len(sges)*16 < len(b) {
		prm.PutData(b[16*len(sges):], prm.Data{LKey: prm.InvalidLKey})
	}
	q.p.mem.put(at, b)
	q.rhead++
	q.p.mem.put32(q.db, uint32(q.rhead))
}

// mr registers n bytes of new memory.
func (p *program) mr(n int, access uint32) (*adapter.MR, uint64) {
	p.t.Helper()
	addr := p.mem.alloc(n)
	m, err := p.ctx.RegMR(nil, p.pd, addr, uint64(n), addr, access)
	fatal.If(p.t, err)
	return m, addr
}

// made is an object that a command made.
type made struct {
	prm.Destruction
	ctx *adapter.Context
}

func (m *made) Close() error {
	in := make([]byte, 16)
	m.Put(in)
	_, err := m.ctx.Exec(0, in, 16)
	return err
}

// devx makes an object by a command.
func (p *program) devx(in []byte, outLen int) (*made, []byte) {
	p.t.Helper()
	out, err := p.ctx.Exec(0, in, outLen)
	if err != nil {
		p.t.Fatalf("%v: %v", err, out)
	}
	d, ok := prm.DestructionOf(in, out, 0)
	if !ok {
		p.t.Fatal("the command makes no object")
	}
	return &made{d, p.ctx}, out
}

// command executes a command, which must succeed, and returns its answer of n bytes.
func (p *program) command(in []byte, n int) []byte {
	p.t.Helper()
	out, err := p.ctx.Exec(0, in, n)
	fatal.If(p.t, err)
	return out
}

// move changes the state of a QP by a command, with a context unless it is nil.
func (p *program) move(qpn uint32, c prm.Command, ctx *prm.QPContext) {
	p.t.Helper()
	in := command(c, 0, 16)
	if ctx != nil {
		in = command(c, 0, 0x110)
		prm.PutQP(in, ctx)
	}
	prm.PutNumber(in, qpn)
	p.command(in, 16)
}

// pair is two programs on one network with connected QPs.
type pair struct {
	a, b   *program
	qa, qb *qp
}

func newPair(t testing.TB, o options) *pair {
	t.Helper()
	net := inproc.NewNetwork(nil)
	p := &pair{a: start(t, net, testAddr, o), b: start(t, net, netip.MustParseAddr("10.0.0.2"), o)}
	p.qa, p.qb = p.a.rc(), p.b.rc()
	p.qa.join(p.qb)
	return p
}

// both runs a test with queues that are shared and with queues that are copied.
func both(t *testing.T, test func(t *testing.T, o options)) {
	for _, shared := range sharedModes {
		t.Run(fmt.Sprintf("shared=%t", shared), func(t *testing.T) { test(t, options{shared: shared}) })
	}
}
