package verbs_test

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// BenchmarkWrite posts RDMA WRITEs with many outstanding, between two devices of this
// process over loopback, plain and through a key that signs.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{64, 4096, 64 << 10, 1 << 20} {
		for _, signed := range []bool{false, true} {
			if signed && size < 4096 {
				continue
			}
			b.Run(fmt.Sprintf("size=%d/signed=%t", size, signed), func(b *testing.B) { benchmarkWrite(b, size, signed) })
		}
	}
}

func benchmarkWrite(b *testing.B, size int, signed bool) {
	open := func() *node {
		n := new(node)
		n.dev = check(verbs.Open(loopback(), nil))
		n.pd = check(n.dev.NewPD())
		n.cq = check(n.dev.NewCQ(1 << 12))
		n.qp = check(n.pd.NewQP(verbs.QPAttr{SendCQ: n.cq, MaxInlineData: 256, MaxSendWR: 256}))
		return n
	}
	x, y := open(), open()
	connect(x, y)
	defer x.qp.Close()
	defer y.qp.Close()
	src := check(x.pd.Register(make([]byte, size), rdma.LocalWrite))
	dst := check(y.pd.Register(make([]byte, size/512*520+size), rdma.LocalWrite|rdma.RemoteWrite))
	sge := src.SGE(0, size)
	if signed {
		key := check(x.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 4}))
		c := x.qp.Start()
		c.Configure(key).List(src.SGE(0, size)).Signature(signature(nil, &dif))
		fatal.If(b, c.Complete())
		sge = key.SGE(0, size/512*520)
	}
	depth := max(4, min(128, 8<<20/size))
	wcs := make([]rdma.WC, depth)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	posted, done := 0, 0
	for done < b.N {
		c := x.qp.Start()
		for posted < b.N && posted-done < depth {
			c.Signaled().Write(dst.RKey(), dst.Addr()).SGE(sge)
			posted++
		}
		fatal.If(b, c.Complete())
		n, err := x.cq.Wait(b.Context(), wcs)
		fatal.If(b, err)
		for _, wc := range wcs[:n] {
			if wc.Status != rdma.StatusSuccess {
				b.Fatal(wc.Status)
			}
		}
		done += n
	}
}
