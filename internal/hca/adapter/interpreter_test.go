package adapter_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
)

// lone starts one program with a device.
func lone(t testing.TB) *program {
	return start(t, inproc.NewNetwork(nil), netip.MustParseAddr("10.0.0.1"), options{})
}

// command makes a command of n bytes.
func command(c prm.Command, mod uint16, n int) []byte {
	in := make([]byte, n)
	prm.PutCommand(in, c, mod)
	return in
}

// mkeyCommand makes a CREATE_MKEY of n bytes for a key that no QP owns. set sets a field of its context.
func mkeyCommand(n int, pd uint32, mode uint8) (in []byte, set func(off, n int, v uint64)) {
	in = command(prm.CmdCreateMKey, 0, n)
	set = func(off, n int, v uint64) { prm.SetBits(in, 0x80+off, n, v) }
	set(0x16, 2, uint64(mode))
	set(0x20, 24, 0xffffff)
	set(0x68, 24, uint64(pd))
	return in, set
}

// pages is memory of a umem whose pages are scattered.
type pages struct {
	scattered
	p    *program
	umem uint32
	free int
}

// pagedUmem makes a umem of n scattered pages by a command. It begins 40 bytes after the
// beginning of a page, so that entries of queues lie in two pages.
func (p *program) pagedUmem(n int) *pages {
	p.t.Helper()
	g := &pages{scattered: scattered{mem: p.mem, offset: 40}, p: p}
	first := (p.mem.alloc((2*n+1)*4096) + 4095) &^ 4095
	for i := range n {
		g.addrs = append(g.addrs, first+uint64(2*(n-1-i))*4096)
	}
	in := command(prm.CmdCreateUmem, 0, 0x30+8*n)
	prm.SetBits(in, 0x80+0xa0, 32, uint64(g.offset))
	prm.SetBits(in, 0x80+0xc0, 64, uint64(n))
	for i, a := range g.addrs {
		prm.SetBits(in, 8*(0x30+8*i), 64, a|3)
	}
	_, out := p.devx(in, 16)
	g.umem = prm.NumberOf(out)
	return g
}

// alloc returns the offset of n bytes.
func (g *pages) alloc(n int) int {
	at := g.free
	g.free += (n + 63) &^ 63
	return at
}

func (g *pages) put32(off int, v uint32) {
	g.put(off, binary.BigEndian.AppendUint32(nil, v))
}

// looped is a QP that commands have made in a umem and connected to itself.
type looped struct {
	*pages
	number, cqn      uint32
	ring, cdb        int // of the CQ
	sq, db           int
	blocks, entries  int
	head             uint16
	consumer         uint32
	cqObject, object *made
}

func (p *program) loop(blocks, entries int) *looped {
	p.t.Helper()
	l := &looped{pages: p.pagedUmem(12), blocks: blocks, entries: entries}
	l.ring, l.cdb, l.sq, l.db = l.alloc(entries*64), l.alloc(8), l.alloc(blocks*64), l.alloc(8)
	in := command(prm.CmdCreateCQ, 0, 0x110)
	c := prm.CQContext{UAR: testUAR, EQN: testEQ, DBAddr: uint64(l.cdb), DBUmem: l.umem, RingOff: uint64(l.ring), RingUmem: l.umem}
	for 1<<c.LogSize < entries {
		c.LogSize++
	}
	c.Put(in)
	var out []byte
	l.cqObject, out = p.devx(in, 16)
	l.cqn = prm.NumberOf(out)
	for i := range entries {
		l.put(l.ring+64*i, bytes.Repeat([]byte{0xf1}, 64))
	}
	q := prm.QPContext{PD: p.pd.Number(), UAR: testUAR, UserIndex: 9, SendCQ: l.cqn, RQType: prm.RQNone, DBAddr: uint64(l.db), DBUmem: l.umem}
	for 1<<q.LogSQSize < blocks {
		q.LogSQSize++
	}
	in = command(prm.CmdCreateQP, 0, 0x110)
	prm.PutQP(in, &q)
	prm.PutQueue(in, l.umem, uint64(l.sq))
	l.object, out = p.devx(in, 16)
	l.number = prm.NumberOf(out)
	l.move(prm.CmdRst2InitQP, &prm.QPContext{Path: prm.Path{Port: 1}, Read: true, Write: true})
	l.move(prm.CmdInit2RTRQP, &prm.QPContext{MTU: 5, RemoteQPN: l.number, NextRecvPSN: 0x4242, MinRNRNAK: 12, Path: prm.Path{ForceLoopback: true}})
	l.move(prm.CmdRTR2RTSQP, &prm.QPContext{NextSendPSN: 0x4242, RetryCount: 7, RNRRetry: 7, Path: prm.Path{AckTimeout: 14}})
	return l
}

func (l *looped) move(c prm.Command, q *prm.QPContext) {
	l.p.t.Helper()
	l.p.move(l.number, c, q)
}

// post writes requests and rings the doorbell by delivering it.
func (l *looped) post(wqes ...*wqe) {
	for _, w := range wqes {
		b := w.finish(l.number, l.head)
		for ; len(b) > 0; b = b[64:] {
			l.put(l.sq+64*(int(l.head)%l.blocks), b[:64])
			l.head++
		}
	}
	l.put32(l.db+4, uint32(l.head))
	l.p.ctx.Ring(prm.UARBlue, uint64(l.head)<<40|uint64(l.number)<<8)
}

// wait takes the next completion, and writes 16 bits of the consumer index.
func (l *looped) wait() prm.CQE {
	l.p.t.Helper()
	owner := byte(l.consumer / uint32(l.entries) & 1)
	for {
		b := l.get(l.ring+64*int(l.consumer%uint32(l.entries)), 64)
		if b[63]&1 == owner && b[63]>>4 != uint8(prm.CQEInvalid) {
			l.consumer++
			l.put32(l.cdb, l.consumer&0xffff)
			c, _ := prm.ParseCQE(b)
			return c
		}
		runtime.Gosched()
	}
}

// TestCommandQueues runs queues that commands have made on scattered pages, of which many
// entries lie in two pages, over more than 2^16 completions.
func TestCommandQueues(t *testing.T) {
	p := lone(t)
	l := p.loop(128, 64)
	mr, at := p.mr(8192, 7)
	for i := range 300 {
		want := fmt.Sprintf("message %4d", i)
		p.mem.put(at, []byte(want))
		to := at + 4096 + uint64(i%4)*64
		l.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, mr.LKey()).data(at, uint32(len(want)), mr.LKey()))
		if c := l.wait(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpWrite || c.UserIndex != 9 || c.QPN != l.number {
			t.Fatalf("completion %d: %+v", i, c)
		}
		if got := string(p.mem.get(to, len(want))); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	const batch = 32
	for range (1<<16 + 1<<10) / batch {
		var nops []*wqe
		for range batch {
			nops = append(nops, newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
		}
		l.post(nops...)
		for range batch {
			if c := l.wait(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpNop {
				t.Fatalf("completion %d: %+v", l.consumer, c)
			}
		}
	}
	in := command(prm.CmdDestroyUmem, 0, 16)
	prm.PutNumber(in, l.umem)
	if out, _ := p.ctx.Exec(0, in, 16); prm.CommandStatus(out[0]) != prm.CmdResourceBusy {
		t.Errorf("destruction of a umem in use: %x", out)
	}
	for _, o := range []*made{l.object, l.cqObject} {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := p.ctx.Exec(0, in, 16); err != nil {
		t.Error(err)
	}
}

// TestQPRights changes the peer's rights in INIT2RTR_QP as UCX does: only those that
// opt_param_mask selects.
func TestQPRights(t *testing.T) {
	p := lone(t)
	l := p.loop(16, 16)
	l.move(prm.CmdToRstQP, nil)
	l.move(prm.CmdRst2InitQP, &prm.QPContext{Path: prm.Path{Port: 1}, Write: true})
	in := command(prm.CmdInit2RTRQP, 0, 0x110)
	prm.PutQP(in, &prm.QPContext{MTU: 1, RemoteQPN: l.number, Read: true, Write: true, Path: prm.Path{ForceLoopback: true}})
	prm.PutNumber(in, l.number)
	prm.SetBits(in, 0x80, 32, prm.OptRead)
	p.command(in, 16)
	q := p.ctx.QP(l.number)
	if a, _ := q.Query(); rdma.Access(a.AccessFlags) != rdma.RemoteRead|rdma.RemoteWrite || a.State != rdma.StateRTR || a.MaxDestRdAtomic != 1 {
		t.Errorf("%+v", a)
	}
	// The QP is in RTR now: the same command is refused.
	if out, err := p.ctx.Exec(0, in, 16); prm.CommandStatus(out[0]) != prm.CmdBadParam || !errors.Is(err, adapter.ErrCommand) {
		t.Errorf("%x, %v", out, err)
	}
}

// TestTransportDomain makes and frees a transport domain, which drivers of Ethernet do when they start.
func TestTransportDomain(t *testing.T) {
	p := lone(t)
	out, err := p.ctx.Exec(5, command(prm.CmdAllocDomain, 0, 16), 16)
	fatal.If(t, err)
	in := command(prm.CmdDeallocDomain, 0, 16)
	prm.PutNumber(in, prm.NumberOf(out))
	for _, v := range []struct {
		uid    uint16
		status prm.CommandStatus
	}{{6, prm.CmdBadResource}, {5, prm.CmdOK}, {5, prm.CmdBadResource}} {
		out, _ := p.ctx.Exec(v.uid, in, 16)
		if st, _ := prm.StatusOf(out); st != v.status {
			t.Errorf("user %d: status %v, want %v", v.uid, st, v.status)
		}
	}
}

// TestCommandRefused gives each kind of refusal its status, and every refusal a syndrome.
func TestCommandRefused(t *testing.T) {
	p := lone(t)
	l := p.loop(16, 16)
	named := func(c prm.Command, n uint32) []byte {
		in := command(c, 0, 16)
		prm.PutNumber(in, n)
		return in
	}
	mine := named(prm.CmdAllocPD, 0)
	out, err := p.ctx.Exec(5, mine, 16)
	fatal.If(t, err)
	owned := prm.NumberOf(out)
	key := func(pd uint32, umr uint64) []byte {
		in, set := mkeyCommand(0x110, pd, prm.AccessModeKLM)
		set(0x10, 1, umr)
		return in
	}
	for _, v := range []struct {
		name   string
		uid    uint16
		in     []byte
		out    int
		status prm.CommandStatus
	}{
		{"unknown opcode", 0, command(0x7ff, 0, 16), 16, prm.CmdBadOp},
		{"no command", 0, []byte{1}, 16, prm.CmdBadInputLen},
		{"short", 0, command(prm.CmdCreateQP, 0, 0x10f), 16, prm.CmdBadInputLen},
		{"long", 0, command(prm.CmdQueryQP, 0, 20), 0x200, prm.CmdBadInputLen},
		{"short answer", 0, named(prm.CmdQueryQP, l.number), 0x20, prm.CmdBadOutputLen},
		{"no QP", 0, named(prm.CmdQueryQP, 0xfffffe), 0x200, prm.CmdBadResource},
		{"no PD", 0, key(0xfffffe, 1), 16, prm.CmdBadResource},
		{"another's PD", 6, key(owned, 1), 16, prm.CmdBadResource},
		{"umr_en 0", 0, key(owned, 0), 16, prm.CmdBadParam},
		{"CQ in use", 0, named(prm.CmdDestroyCQ, l.cqn), 16, prm.CmdResourceBusy},
		{"no object", 0, command(prm.CmdDestroyObject, prm.ObjectDEK, 16), 16, prm.CmdBadResource},
		{"object type", 0, command(prm.CmdCreateObject, 0x21, 64), 16, prm.CmdBadParam},
	} {
		out, err := p.ctx.Exec(v.uid, v.in, v.out)
		st, syndrome := prm.StatusOf(out)
		if st != v.status || syndrome>>16 != 0x50f7 || !errors.Is(err, adapter.ErrCommand) {
			t.Errorf("%s: status %v, syndrome %#x, %v; want %v", v.name, st, syndrome, err, v.status)
		}
	}
	if _, err := p.ctx.Exec(5, key(owned, 1), 16); err != nil {
		t.Errorf("the owner's PD: %v", err)
	}
}

// TestKeyTag makes a key with a tag and rights, which it keeps when a configuration sets
// neither.
func TestKeyTag(t *testing.T) {
	p := newPair(t, options{})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 0xf)
	in, set := mkeyCommand(0x110, p.a.pd.Number(), prm.AccessModeKLM)
	set(0x10, 1, 1)
	set(0x12, 4, 0xf)
	set(0x38, 8, 0x42)
	set(0x1a0, 32, 4)
	_, out := p.a.devx(in, 16)
	k := &key{p: p.a, number: prm.NumberOf(out)<<8 | 0x42}
	p.a.mem.put(from, []byte("rights of the key's creation"))
	u := k.configure().list(prm.Data{Length: 28, LKey: src.LKey(), Addr: from})
	u.mask &^= prm.MaskAccess | prm.MaskMKey
	u.do(p.qa)
	p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(0, 28, k.number))
	p.qa.done()
	p.qb.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(0, k.number).data(to+1024, 28, dst.LKey()))
	p.qb.done()
	if got := string(p.b.mem.get(to+1024, 28)); got != "rights of the key's creation" {
		t.Errorf("%q", got)
	}
}

// TestKeyOfUmem makes keys in mode MTT of a umem that begins within a page, as UCX and ibverbs-tests do. A key's first
// byte has the place in its page that its address has, and the umem stays until its keys have gone.
func TestKeyOfUmem(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		const size = 9000
		from := p.a.mem.alloc(size+100) + 24
		p.a.mem.put(from, pattern(size, 7))
		dst, to := p.b.mr(size, 0xf)
		umem, err := p.a.ctx.RegUmem(p.a.mem, from, size, 1)
		fatal.If(t, err)
		create := func(umem uint32, at, start, length uint64, free uint64) []byte {
			in, set := mkeyCommand(0x110, p.a.pd.Number(), prm.AccessModeMTT)
			set(0x11, 5, 0x1f)
			set(1, 1, free)
			set(0x38, 8, 0x42)
			set(0x80, 64, start)
			set(0xc0, 64, length)
			set(0x1db, 5, 12)
			prm.SetBits(in, 0x320, 32, uint64(umem))
			prm.SetBits(in, 0x340, 64, at)
			return in
		}
		for _, v := range []struct {
			start, at, first, length uint64 // the key's first address, and the byte of the umem that has it
		}{
			{from, 0, 0, size},
			{0x7000_0000 + from%4096, 0, 0, size},
			{0x7000_0000 + from%4096, 4096, 4096, size - 4096},
		} {
			key, out := p.a.devx(create(umem.Number(), v.at, v.start, v.length, 0), 16)
			number := prm.NumberOf(out)<<8 | 0x42
			if err := umem.Close(); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("freed under a key: %v", err)
			}
			p.qb.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(v.start+100, number).data(to, uint32(v.length-100), dst.LKey()))
			if c := p.qb.send.waitCQE(); c.Opcode != prm.CQERequester || !bytes.Equal(p.b.mem.get(to, int(v.length-100)), p.a.mem.get(from+v.first+100, int(v.length-100))) {
				t.Errorf("a READ from %#x of %+v: %+v", v.start, v, c)
			}
			p.b.mem.put(to, []byte("written"))
			p.qb.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(v.start+v.length-7, number).data(to, 7, dst.LKey()))
			if c := p.qb.send.waitCQE(); c.Opcode != prm.CQERequester || string(p.a.mem.get(from+v.first+v.length-7, 7)) != "written" {
				t.Errorf("a WRITE to the end of %+v: %+v", v, c)
			}
			fatal.If(t, key.Close())
		}
		for name, in := range map[string][]byte{
			"another umem":          create(umem.Number()+1, 0, from, size, 0),
			"no bytes":              create(umem.Number(), 0, from, 0, 0),
			"free":                  create(umem.Number(), 0, from, size, 1),
			"longer than its pages": create(umem.Number(), 0, from, size+4096, 0),
			"longer than memory":    create(umem.Number(), 0, from, 1<<64-1, 0),
			"behind the umem":       create(umem.Number(), size+1, from, 1, 0),
			"far behind the umem":   create(umem.Number(), 1<<64-4096, from, 1, 0),
		} {
			if _, err := p.a.ctx.Exec(0, in, 16); err == nil {
				t.Errorf("%s: a key", name)
			}
		}
		if err := umem.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKeyWithList makes keys whose list stands in the command. Entries of a KSM have the same
// size, and its addresses count from its start address, which is on no multiple of that size. An
// entry that lies outside of its region matters only where it is used.
func TestKeyWithList(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 0xf)
		dst, to := p.b.mr(4096, 0xf)
		p.a.mem.put(from, pattern(4096, 7))
		want := p.a.mem.get(from, 4096)
		create := func(mode uint8, start, length uint64, list ...prm.Data) uint32 {
			in, set := mkeyCommand(0x110+16*len(list), p.a.pd.Number(), mode)
			set(0x11, 5, 0x1f)
			set(0x38, 8, 0x17)
			set(0x80, 64, start)
			set(0xc0, 64, length)
			set(0x1a0, 32, uint64(len(list)))
			set(0x1db, 5, 9)
			prm.SetBits(in, 0x300, 32, uint64(len(list)))
			for i, d := range list {
				prm.PutData(in[0x110+16*i:], d)
			}
			_, out := p.a.devx(in, 16)
			return prm.NumberOf(out)<<8 | 0x17
		}
		read := func(key uint32, addr uint64, n uint32) prm.CQE {
			p.qb.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(addr, key).data(to, n, dst.LKey()))
			return p.qb.send.waitCQE()
		}
		const start = 0x7000_0018
		ksm := create(prm.AccessModeKSM, start, 1536+8,
			prm.Data{LKey: src.LKey(), Addr: from + 1024}, prm.Data{LKey: src.LKey(), Addr: from}, prm.Data{LKey: src.LKey(), Addr: from + 512}, prm.Data{LKey: src.LKey(), Addr: from + 4096})
		want = slices.Concat(want[1024:1536], want[:1024])
		if c := read(ksm, start+500, 1000); c.Opcode != prm.CQERequester {
			t.Fatalf("a READ across entries of a KSM ended with %+v, want opcode %d", c, prm.CQERequester)
		}
		if got := p.b.mem.get(to, 1000); !bytes.Equal(got, want[500:1500]) {
			t.Errorf("a READ across entries of a KSM: %s", firstDifference(got, want[500:1500]))
		}
		p.qb.post(newWQE(prm.OpMaskedFetchAdd, 8, 0, prm.FlagCQUpdate).raddr(start+516, ksm).bytes(0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0).data(to, 4, dst.LKey()))
		p.qb.done()
		if a, b := binary.NativeEndian.Uint32(want[516:]), binary.NativeEndian.Uint32(p.a.mem.get(from+4, 4)); b != a+5 {
			t.Errorf("an atomic added 5 to %#x: the word is %#x, want %#x", a, b, a+5)
		}
		klm := create(prm.AccessModeKLM, 0, 150, prm.Data{Length: 100, LKey: src.LKey(), Addr: from + 3000}, prm.Data{Length: 60, LKey: src.LKey(), Addr: from + 2000})
		p.qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(20, 130, klm))
		p.qa.done()
		if got, want := p.b.mem.get(to, 130), slices.Concat(p.a.mem.get(from+3020, 80), p.a.mem.get(from+2000, 50)); !bytes.Equal(got, want) {
			t.Errorf("a WRITE from a KLM: %s", firstDifference(got, want))
		}
		if c := read(ksm, start+1536, 8); c.Opcode != prm.CQERequesterErr || c.Syndrome != prm.SyndromeRemoteAccess {
			t.Errorf("a READ of an entry outside of its region ended with %+v, want opcode %d and syndrome %#x", c, prm.CQERequesterErr, prm.SyndromeRemoteAccess)
		}
	})
}

// interpret executes commands that the bytes of input choose: a byte for the opcode, one for the
// user, two for the length, and the rest of the command. Numbers of the objects that exist are
// put where commands name objects, so that more than the first check is reached.
func interpret(t testing.TB, input []byte) {
	p := lone(t)
	l := p.loop(16, 16)
	opcodes := []prm.Command{
		prm.CmdQueryHCACap, prm.CmdQueryNICVPort, prm.CmdQueryLAG, prm.CmdAllocPD, prm.CmdDeallocPD, prm.CmdCreateUmem, prm.CmdDestroyUmem, prm.CmdCreateCQ,
		prm.CmdDestroyCQ, prm.CmdCreateQP, prm.CmdDestroyQP, prm.CmdRst2InitQP, prm.CmdInit2InitQP, prm.CmdInit2RTRQP, prm.CmdRTR2RTSQP, prm.CmdToErrQP, prm.CmdToRstQP,
		prm.CmdQueryQP, prm.CmdCreateRMP, prm.CmdModifyRMP, prm.CmdQueryRMP, prm.CmdDestroyRMP, prm.CmdCreateMKey, prm.CmdDestroyMKey, prm.CmdCreatePSV, prm.CmdDestroyPSV, prm.CmdCreateObject,
		prm.CmdQueryObject, prm.CmdDestroyObject, prm.CmdCreateSQ, prm.CmdAllocDomain, prm.CmdDeallocDomain,
	}
	numbers := []uint32{p.pd.Number(), l.umem, l.cqn, l.number}
	for len(input) >= 4 {
		c, uid, n := opcodes[int(input[0])%len(opcodes)], uint16(input[1]&3), int(input[2])<<1&0x1fe|int(input[3]&1)
		input = input[4:]
		in := make([]byte, n)
		input = input[copy(in, input):]
		if n >= 16 {
			prm.SetBits(in, 0, 16, uint64(c))
			if in[2]&1 != 0 {
				prm.PutNumber(in, numbers[int(in[3])%len(numbers)])
			}
			if c == prm.CmdCreateMKey || c == prm.CmdCreateQP {
				prm.SetBits(in, 0x80+0x68, 24, uint64(p.pd.Number()))
				prm.SetBits(in, 0x18*8+0x28, 24, uint64(p.pd.Number()))
			}
		}
		for _, room := range []int{16, 0x1010} {
			out, err := p.ctx.Exec(uid, in, room)
			st, syndrome := prm.StatusOf(out)
			if len(out) != room || (err == nil) != (st == prm.CmdOK) || st != prm.CmdOK && syndrome == 0 {
				t.Fatalf("%v of %d bytes: status %v, syndrome %#x in %d bytes, error %v", c, n, st, syndrome, len(out), err)
			}
			if d, ok := prm.DestructionOf(in, out, 0); err == nil && ok {
				numbers = append(numbers, d.Number)
			}
		}
	}
	p.ctx.Poll()
	p.ctx.Scan()
	if err := p.ctx.Close(); err != nil {
		t.Fatalf("objects that commands made are left: %v", err)
	}
}

// FuzzInterpreter executes arbitrary commands.
func FuzzInterpreter(f *testing.F) {
	f.Add([]byte{})
	long := make([]byte, 0, 1<<13)
	for op := range byte(32) {
		long = append(append(long, op, 0, 0x88, 0), bytes.Repeat([]byte{0, 1, op}, 91)[:0x110]...)
	}
	f.Add(long)
	f.Fuzz(func(t *testing.T, input []byte) { interpret(t, input) })
}

// firstDifference says where bytes of the same length begin to differ.
func firstDifference(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d of %d is %#x, want %#x", i, len(got), got[i], want[i])
		}
	}
	return "the bytes are equal"
}
