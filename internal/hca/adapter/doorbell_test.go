package adapter_test

import (
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestDoorbellsInParts posts requests on more queue pairs than one poll reads the records of.
func TestDoorbellsInParts(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		p := start(t, inproc.NewNetwork(nil), testAddr, o)
		c := p.cq(256, nil)
		qps := make([]*qp, 200)
		for i := range qps {
			qps[i] = p.qp(c, c, func(a *adapter.QPAttr) { a.SQCount, a.RQCount = 4, 1 })
			qps[i].connect(qps[i])
		}
		p.ctx.Scan()
		post := func(q *qp) { q.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate)) }
		completed := func(n int, poll func()) {
			t.Helper()
			for deadline := time.Now().Add(20 * time.Second); n > 0; time.Sleep(20 * time.Microsecond) {
				poll()
				for b := c.next(); b != nil; b = c.next() {
					n--
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d requests did not complete", n)
				}
			}
		}
		// The register names the queue, which is found by one poll. Further ones read the other records.
		for _, q := range qps {
			post(q)
			p.ring(0x800, uint64(q.head)<<40|uint64(q.Number())<<8|3)
			p.ctx.Poll()
			completed(1, func() {})
		}
		for p.ctx.Poll() {
		}
		// Each store to the register hides the one before.
		for _, q := range qps {
			post(q)
		}
		completed(len(qps), func() { p.ctx.Poll() })
	})
}
