package adapter_test

import (
	"bytes"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// TestGather posts small writes with one doorbell, and counts how often their data are
// read: once, unless one of them cannot be read. Then the requests before it succeed.
func TestGather(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		for _, bad := range []bool{false, true} {
			p := newPair(t, o)
			src, from := p.a.mr(4096, 0)
			dst, to := p.b.mr(4096, 3)
			const n, size = 20, 48
			want := pattern(n*size, 5)
			p.a.mem.put(from, want)
			p.a.mem.counted = [2]uint64{from, from + 4096}
			var ws []*wqe
			for i := range n {
				key, flags := src.LKey(), uint8(0)
				if bad && i == n-1 {
					key ^= 0xabc
				}
				if i == n-1 {
					flags = prm.FlagCQUpdate
				}
				ws = append(ws, newWQE(prm.OpWrite, 0, 0, flags).raddr(to+uint64(i*size), dst.RKey()).data(from+uint64(i*size), size, key))
			}
			p.qa.post(ws...)
			c := p.qa.send.waitCQE()
			if !bad {
				if c.Opcode != prm.CQERequester || !bytes.Equal(p.b.mem.get(to, n*size), want) {
					t.Errorf("completion %+v, or the data differ", c)
				}
				p.a.mem.mu.Lock()
				if p.a.mem.batches > 2 { // the end of the queue may split a batch
					t.Errorf("%d reads of %d small ranges", p.a.mem.batches, n)
				}
				p.a.mem.mu.Unlock()
			} else if c.Opcode != prm.CQERequesterErr || c.Syndrome != prm.SyndromeLocalProt || !bytes.Equal(p.b.mem.get(to, (n-1)*size), want[:(n-1)*size]) {
				t.Errorf("completion %+v, or the data before it differ", c)
			}
		}
	})
}

// TestGatherFence: a WRITE behind a fence sends the bytes that the READ before the fence has
// brought. The device must not gather them earlier.
func TestGatherFence(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := newPair(t, o)
		src, from := p.a.mr(4096, 1)
		dst, to := p.b.mr(4096, adapterAll)
		want := pattern(64, 9)
		p.b.mem.put(to, want)
		p.qa.post(
			newWQE(prm.OpWrite, 0, 0, 0).raddr(to+1024, dst.RKey()).data(from+512, 64, src.LKey()),
			newWQE(prm.OpRead, 0, 0, 0).raddr(to, dst.RKey()).data(from, 64, src.LKey()),
			newWQE(prm.OpWrite, 0, 0, prm.FlagFence).raddr(to+2048, dst.RKey()).data(from, 64, src.LKey()),
			newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(to+3072, dst.RKey()).data(from, 64, src.LKey()),
		)
		p.qa.done()
		for _, at := range []uint64{2048, 3072} {
			if !bytes.Equal(p.b.mem.get(to+at, 64), want) {
				t.Errorf("the data at %d are older than the READ", at)
			}
		}
	})
}

const adapterAll = 0xf // local and remote access of all kinds
