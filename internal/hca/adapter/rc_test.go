package adapter_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
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

// TestInline sends inline data of an entry that wraps around the queue's end.
func TestInline(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		dst, to := p.b.mr(1<<16, 1)
		for i := range 60 {
			want := pattern(100+i*7, byte(i))
			p.qb.postRecv(prm.Data{Length: 1 << 16, LKey: dst.LKey(), Addr: to})
			p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).inline(want))
			if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequester {
				t.Fatalf("message %d: %+v", i, c)
			}
			if r := p.qb.recv.waitCQE(); r.ByteCount != uint32(len(want)) || r.Counter != uint16(i) {
				t.Fatalf("message %d: %+v", i, r)
			}
			if !bytes.Equal(p.b.mem.get(to, len(want)), want) {
				t.Fatalf("message %d: the data differ", i)
			}
		}
	})
}

// TestFlush checks the error of a request that fails and of the following requests.
func TestFlush(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 0)
		p.qa.post(
			newWQE(prm.OpWrite, 0, 0, 0).raddr(from, 0x12345600).data(from, 8, src.LKey()),
			newWQE(prm.OpSend, 0, 0, 0).data(from, 8, src.LKey()),
		)
		if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequesterErr || c.Syndrome != prm.SyndromeRemoteAccess {
			t.Errorf("completion %+v", c)
		}
		if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequesterErr || c.Syndrome != prm.SyndromeFlush {
			t.Errorf("completion %+v", c)
		}
		// Requests posted later are flushed too.
		p.qa.postRecv(prm.Data{Length: 8, LKey: src.LKey(), Addr: from})
		p.qa.post(newWQE(prm.OpSend, 0, 0, 0).data(from, 8, src.LKey()))
		if c := p.qa.send.waitCQE(); c.Syndrome != prm.SyndromeFlush {
			t.Errorf("completion %+v", c)
		}
		if c := p.qa.recv.waitCQE(); c.Opcode != prm.CQERecvErr || c.Syndrome != prm.SyndromeFlush {
			t.Errorf("completion %+v", c)
		}
	})
}
