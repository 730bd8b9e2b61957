package adapter_test

import (
	"bytes"
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// TestOnDemand sends from an implicit region, and registers and prefetches memory that is not
// there: its use fails, not its registration.
func TestOnDemand(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		const onDemand, lw = 1 << 6, 1
		p := newPair(t, o)
		all, err := p.a.ctx.RegMR(nil, p.a.pd, 0, math.MaxUint64, 0, onDemand|lw)
		if err != nil {
			t.Fatal(err)
		}
		dst, to := p.b.mr(8192, lw)
		from := p.a.mem.alloc(5000)
		want := pattern(5000, 9)
		p.a.mem.put(from, want)
		p.qb.postRecv(prm.Data{Length: 8192, LKey: dst.LKey(), Addr: to})
		p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(from, 5000, all.LKey()))
		p.qa.done()
		if p.qb.recv.waitCQE(); !bytes.Equal(p.b.mem.get(to, 5000), want) {
			t.Error("the data differ")
		}
		plain, at := p.a.mr(4096, lw)
		absent, err := p.a.ctx.RegMR(nil, p.a.pd, 0x1000, 4096, 0x1000, onDemand)
		if err != nil {
			t.Fatalf("memory that is not there: %v", err)
		}
		for _, v := range []struct {
			name          string
			advice, flags uint32
			r             rdma.SGE
			want          error
		}{
			{"prefetch", adapter.AdvicePrefetch, 1, rdma.SGE{Addr: from, Length: 5000, LKey: all.LKey()}, nil},
			{"prefetch for writing", adapter.AdvicePrefetchWrite, 0, rdma.SGE{Addr: from, Length: 5000, LKey: all.LKey()}, nil},
			{"memory that is not there", adapter.AdvicePrefetch, 1, rdma.SGE{Addr: 0x1000, Length: 9, LKey: absent.LKey()}, syscall.EFAULT},
			{"the same, not waited for", adapter.AdvicePrefetch, 0, rdma.SGE{Addr: 0x1000, Length: 9, LKey: absent.LKey()}, nil},
			{"the same for writing", adapter.AdvicePrefetchWrite, 0, rdma.SGE{Addr: 0x1000, Length: 9, LKey: absent.LKey()}, syscall.EPERM},
			{"beyond the end", adapter.AdvicePrefetch, 0, rdma.SGE{Addr: 0x1fff, Length: 2, LKey: absent.LKey()}, syscall.EFAULT},
			{"a region of another kind", adapter.AdvicePrefetch, 0, rdma.SGE{Addr: at, Length: 1, LKey: plain.LKey()}, syscall.EINVAL},
			{"no key", adapter.AdvicePrefetch, 0, rdma.SGE{Addr: at, Length: 1, LKey: all.LKey() + 1}, syscall.ENOENT},
			{"unknown advice", 3, 0, rdma.SGE{LKey: all.LKey()}, syscall.EOPNOTSUPP},
			{"unknown flag", 0, 2, rdma.SGE{LKey: all.LKey()}, syscall.EINVAL},
		} {
			if err := p.a.ctx.AdviseMR(p.a.pd, v.advice, v.flags, []rdma.SGE{v.r}); !errors.Is(err, v.want) {
				t.Errorf("%s: %v, want %v", v.name, err, v.want)
			}
		}
		p.qa.post(newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).data(0x1000, 16, absent.LKey()))
		p.qa.fails("use of memory that is not there", prm.SyndromeLocalProt)
	})
}
