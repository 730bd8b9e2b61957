package adapter_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// memcpy returns an entry that copies n bytes.
func memcpy(n, from uint32, fromAddr uint64, to uint32, toAddr uint64) *wqe {
	w := newWQE(prm.OpMMO, 1, 0, prm.FlagCQUpdate)
	return w.bytes(make([]byte, 16)...).data(fromAddr, n, from).data(toAddr, n, to)
}

// TestMemcpy copies memory in requests of the send queue.
func TestMemcpy(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(1<<20, 0)
		dst, to := p.a.mr(1<<20, 1)
		for i, n := range []uint32{1, 4096, 1<<16 + 1, 1 << 20} {
			want := pattern(int(n), byte(i))
			p.a.mem.put(from, want)
			p.qa.post(memcpy(n, src.LKey(), from, dst.LKey(), to))
			if c := p.qa.send.waitCQE(); c.Opcode != prm.CQERequester || c.SendOp != prm.OpMMO {
				t.Fatalf("%d bytes: %+v", n, c)
			}
			if !bytes.Equal(p.a.mem.get(to, int(n)), want) {
				t.Errorf("%d bytes: the data differ", n)
			}
		}
		p.qa.post(memcpy(8, dst.LKey(), to, src.LKey(), from)) // the destination may not be written
		p.qa.fails("a region that is only read", prm.SyndromeLocalProt)
	})
}

// TestNullRegion reads zeros from the null region, writes to it, and lets no peer reach it.
func TestNullRegion(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		dst, to := p.b.mr(8192, 0xf)
		p.b.mem.put(to, pattern(8192, 5))
		p.qa.post(newWQE(prm.OpWrite, 0, 0, 0).raddr(to, dst.RKey()).data(1<<63, 5000, adapter.NullKey),
			newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(to, dst.RKey()).data(77, 8192, adapter.NullKey))
		p.qa.done()
		if want := append(make([]byte, 5000), pattern(8192, 5)[5000:]...); !bytes.Equal(p.b.mem.get(to, 8192), want) {
			t.Error("the data differ")
		}
		p.qb.postRecv(prm.Data{Length: 100, LKey: adapter.NullKey}, prm.Data{Length: 100, LKey: dst.LKey(), Addr: to})
		src, from := p.a.mr(200, 0)
		p.a.mem.put(from, pattern(200, 7))
		p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(from, 200, src.LKey()))
		p.qa.send.waitCQE()
		if p.qb.recv.waitCQE(); !bytes.Equal(p.b.mem.get(to, 100), pattern(200, 7)[100:]) {
			t.Error("the data behind the null region differ")
		}
		p.qa.post(newWQE(prm.OpRead, 0, 0, prm.FlagCQUpdate).raddr(0, adapter.NullKey).data(from, 8, src.LKey()))
		p.qa.fails("a peer reads the null region", prm.SyndromeRemoteAccess)
	})
}
