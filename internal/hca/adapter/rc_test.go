package adapter_test

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

// TestSend sends one message of several ranges and checks both completions.
func TestSend(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(8192, 0)
		dst, to := p.b.mr(8192, 1)
		want := pattern(5000, 1)
		p.a.mem.put(from, want)
		p.qb.postRecv(prm.Data{Length: 1000, LKey: dst.LKey(), Addr: to}, prm.Data{Length: 7000, LKey: dst.LKey(), Addr: to + 1000})
		at := p.qa.post(newWQE(prm.OpSendImm, 0, 0xabcd, prm.FlagCQUpdate|prm.FlagSolicited).data(from, 3000, src.LKey()).data(from+3000, 2000, src.LKey()))
		c := p.qa.send.waitCQE()
		if c.Opcode != prm.CQERequester || c.SendOp != prm.OpSendImm || c.Counter != at || c.UserIndex != 0x1234 || c.QPN != p.qa.Number() {
			t.Errorf("send completion %+v", c)
		}
		r := p.qb.recv.waitCQE()
		if r.Opcode != prm.CQERecvImm || r.ByteCount != 5000 || r.Imm != 0xabcd || !r.Solicited || r.SrcQPN != p.qa.Number() || r.QPN != p.qb.Number() {
			t.Errorf("receive completion %+v", r)
		}
		if !bytes.Equal(p.b.mem.get(to, 5000), want) {
			t.Error("the data differ")
		}
	})
}

// TestRDMA writes, reads, and does atomics, unsignaled but the last.
func TestRDMA(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(1<<20, 1)
		dst, to := p.b.mr(1<<20, 0xf)
		want := pattern(300_000, 3)
		p.a.mem.put(from, want)
		p.qa.post(
			newWQE(prm.OpWrite, 0, 0, 0).raddr(to, dst.RKey()).data(from, 300_000, src.LKey()),
			newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(from+400_000, 300_000, src.LKey()),
		)
		if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpRead || c.ByteCount != 300_000 {
			t.Fatalf("completion %+v", c)
		}
		if !bytes.Equal(p.b.mem.get(to, 300_000), want) || !bytes.Equal(p.a.mem.get(from+400_000, 300_000), want) {
			t.Error("the data differ")
		}
		counter := make([]byte, 8)
		binary.NativeEndian.PutUint64(counter, 40)
		p.b.mem.put(to, counter)
		p.qa.post(
			newWQE(prm.OpFetchAdd, 8, 0, 0).raddr(to, dst.RKey()).u64(2, 0).data(from, 8, src.LKey()),
			newWQE(prm.OpCmpSwap, 8, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).u64(99, 42).data(from+8, 8, src.LKey()),
		)
		if c := p.qa.send.waitCQE(); c.SendOp != prm.OpCmpSwap || c.ByteCount != 8 {
			t.Fatalf("completion %+v", c)
		}
		u := func(p *program, at uint64) uint64 { return binary.NativeEndian.Uint64(p.mem.get(at, 8)) }
		if a, b, c := u(p.a, from), u(p.a, from+8), u(p.b, to); a != 40 || b != 42 || c != 99 {
			t.Errorf("fetched %d, compared %d, left %d", a, b, c)
		}
	})
}

// TestMaskedAtomics adds two fields of a word, and swaps some bits of a word of 4 bytes. The old
// value of 8 bytes is stored as the machine has it, the one of 4 bytes big-endian.
func TestMaskedAtomics(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 1)
		dst, to := p.b.mr(4096, 0xf)
		memory := binary.NativeEndian.AppendUint64(nil, 0x00000001fffffffe)
		memory = binary.NativeEndian.AppendUint32(memory, 0xffffffff)
		memory = binary.NativeEndian.AppendUint32(memory, 0xaabbccdd)
		p.b.mem.put(to, memory)
		small := func(v ...uint32) (b []byte) {
			for _, x := range v {
				b = binary.BigEndian.AppendUint32(b, x)
			}
			return b
		}
		p.qa.post(
			newWQE(prm.OpMaskedFetchAdd, 9, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).u64(0x0000000200000003, 1<<31).data(from, 8, src.LKey()),
			newWQE(prm.OpMaskedCmpSwap, 8, 0, prm.FlagCQUpdate).raddr(to+12, dst.RKey()).bytes(small(0x11223344, 0xdd, 0xff00ff00, 0xff)...).data(from+8, 4, src.LKey()),
			newWQE(prm.OpMaskedCmpSwap, 9, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).u64(0, 0, 1<<64-1, 1<<63).data(from+16, 8, src.LKey()),
			newWQE(prm.OpMaskedFetchAdd, 8, 0, prm.FlagCQUpdate).raddr(to+8, dst.RKey()).bytes(small(2, 0, 0, 0)...).data(from+24, 4, src.LKey()),
		)
		for i, want := range []struct {
			op   prm.Opcode
			size uint32
		}{{prm.OpMaskedFetchAdd, 8}, {prm.OpMaskedCmpSwap, 4}, {prm.OpMaskedCmpSwap, 8}, {prm.OpMaskedFetchAdd, 4}} {
			if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != want.op || c.ByteCount != want.size {
				t.Fatalf("completion %d: %+v", i, c)
			}
		}
		old := p.a.mem.get(from, 32)
		if a, b := binary.NativeEndian.Uint64(old), binary.NativeEndian.Uint64(old[16:]); a != 0x00000001fffffffe || b != 0x0000000300000001 {
			t.Errorf("the words of 8 bytes were %#x and %#x", a, b)
		}
		if a, b := binary.BigEndian.Uint32(old[8:]), binary.BigEndian.Uint32(old[24:]); a != 0xaabbccdd || b != 0xffffffff {
			t.Errorf("the words of 4 bytes were %#x and %#x", a, b)
		}
		memory = p.b.mem.get(to, 16)
		if a, b, c := binary.NativeEndian.Uint64(memory), binary.NativeEndian.Uint32(memory[8:]), binary.NativeEndian.Uint32(memory[12:]); a != 0 || b != 1 || c != 0x11bb33dd {
			t.Errorf("the memory is %#x, %#x, %#x", a, b, c)
		}
	})
}

// TestMaskedAtomicRefused posts masked atomics of sizes that do not exist or do not fit.
func TestMaskedAtomicRefused(t *testing.T) {
	for name, test := range map[string]struct {
		opmod uint8
		n     uint32
		want  prm.Syndrome
	}{
		"no size":             {0, 8, prm.SyndromeLocalQPOp},
		"16 bytes":            {10, 16, prm.SyndromeLocalQPOp},
		"a list of 4 bytes":   {9, 4, prm.SyndromeLocalLength},
		"a list of 8 bytes":   {8, 8, prm.SyndromeLocalLength},
		"no list":             {8, 0, prm.SyndromeLocalLength},
		"a list of 256 bytes": {9, 256, prm.SyndromeLocalLength},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, options{})
			src, from := p.a.mr(4096, 1)
			dst, to := p.b.mr(4096, 0xf)
			w := newWQE(prm.OpMaskedFetchAdd, test.opmod, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).u64(1, 0)
			if test.n > 0 {
				w = w.data(from, test.n, src.LKey())
			}
			p.qa.post(w)
			p.qa.fails("completion", test.want)
		})
	}
}

// TestInline sends inline data of an entry that wraps around the queue's end.
func TestInline(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		dst, to := p.b.mr(1<<16, 1)
		for i := range 60 {
			want := pattern(100+i*7, byte(i))
			p.qb.postRecv(prm.Data{Length: 1 << 16, LKey: dst.LKey(), Addr: to})
			p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).inline(want))
			p.qa.done()
			if r := p.qb.recv.waitCQE(); r.ByteCount != uint32(len(want)) || r.Counter != uint16(i) {
				t.Fatalf("message %d: %+v", i, r)
			}
			if !bytes.Equal(p.b.mem.get(to, len(want)), want) {
				t.Fatalf("message %d: the data differ", i)
			}
		}
	})
}

// TestNoReadsInFlight sets max_rd_atomic to 0. A ConnectX adapter, which has a logarithm in its
// place, takes that as 1.
func TestNoReadsInFlight(t *testing.T) {
	p := newPair(t, options{})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 0xf)
	p.qa.modify(adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
	p.qb.modify(adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
	p.qa.reads = 0
	p.qb.join(p.qa)
	p.b.mem.put(to, []byte("12345678"))
	p.qa.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(from, 8, src.LKey()))
	p.qa.done()
	if got := string(p.a.mem.get(from, 8)); got != "12345678" {
		t.Errorf("read %q", got)
	}
}

// TestRecordBeforeReset resets a QP and connects it again while the device has read its doorbell
// record and not yet looked at it. The indexes in that record are those of the requests before, which
// must not be executed again.
func TestRecordBeforeReset(t *testing.T) {
	p := newPair(t, options{})
	src, from := p.a.mr(4096, 1)
	dst, to := p.b.mr(4096, 0xf)
	add := func() {
		p.qa.post(newWQE(prm.OpFetchAdd, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).u64(1, 0).data(from, 8, src.LKey()))
	}
	add()
	add()
	p.qa.send.waitCQE()
	p.qa.send.waitCQE()

	again, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		<-again
		reset := adapter.QPModify{State: rdma.StateReset}
		p.qa.modify(reset, ibv.AttrState)
		p.qa.head = 0
		p.a.mem.put(p.qa.db, make([]byte, 8)) // as the driver does
		p.qb.modify(reset, ibv.AttrState)
		p.qb.join(p.qa)
	}()
	var once sync.Once
	p.a.mem.copied = func() {
		once.Do(func() {
			close(again)
			select {
			case <-done:
			case <-time.After(50 * time.Millisecond): // RESET may wait for this scan
			}
		})
	}
	p.a.ctx.Scan()
	<-done
	p.a.mem.copied = nil
	add()
	p.a.ctx.Scan() // the register has the value that the first request wrote: Poll sees no change
	p.qa.done()
	if n := binary.NativeEndian.Uint64(p.b.mem.get(to, 8)); n != 3 {
		t.Errorf("the word is %#x after three additions of 1", n)
	}
}
