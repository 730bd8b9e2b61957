package roce

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/roce/inproc"
)

// waitingSource is a Source whose page waits until the channel is closed.
type waitingSource struct {
	source
	page <-chan struct{}
}

func (s *waitingSource) ReadAt(p []byte, off uint64) error {
	<-s.page
	return s.source.ReadAt(p, off)
}

func (s *waitingSource) View(off uint64, n int) []byte {
	<-s.page
	return s.source.View(off, n)
}

// TestIsolated lets a request of an isolated QP wait for its memory. Another QP of the same ports
// transfers meanwhile, and the request succeeds in the end.
func TestIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := inproc.Pair(nil)
		port := [2]*Port{NewPort(a, nil), NewPort(b, nil)}
		var slow, fast [2]*QP
		var slowMem, fastMem [2]*memory
		for i, p := range port {
			defer p.Close()
			slow[i], slowMem[i] = newQP(t, p, "slow")
			fast[i], fastMem[i] = newQP(t, p, "fast")
			slow[i].Isolate()
			slow[i].Isolate()
		}
		join(t, slow[0], slow[1], pairOptions{})
		join(t, fast[0], fast[1], pairOptions{})
		synctest.Wait()
		page := make(chan struct{})
		data := pattern(10000, 3)
		slowMem[1].keys[1], fastMem[1].keys[1] = make([]byte, 10000), make([]byte, 10000)
		slowMem[0].post(&Work{Op: rdma.WRWrite, Src: &waitingSource{source{b: data}, page}, Length: 10000, RKey: 1})
		slowMem[0].target = [2]int{1, 0}
		slow[0].Kick()
		synctest.Wait()
		for range 3 {
			fastMem[0].post(&Work{Op: rdma.WRWrite, Src: &source{b: data}, Length: 10000, RKey: 1})
			fastMem[0].target[0]++
			fast[0].Kick()
		}
		fastMem[0].wait()
		fastMem[0].statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
		close(page)
		slowMem[0].wait()
		slowMem[0].statuses(rdma.StatusSuccess)
		if !bytes.Equal(slowMem[1].keys[1], data) {
			t.Error("the memory differs")
		}
	})
}

// TestIsolatedMixed exchanges messages of all kinds between isolated QPs.
func TestIsolatedMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := inproc.Pair(nil)
		pa, pb := NewPort(ca, nil), NewPort(cb, nil)
		defer pa.Close()
		defer pb.Close()
		a, ma := newQP(t, pa, "a")
		b, mb := newQP(t, pb, "b")
		a.Isolate()
		finish := mixed(t, [2]*memory{ma, mb}, rand.New(rand.NewPCG(1, 1)), 200)
		join(t, a, b, pairOptions{})
		b.Isolate() // while packets are under way
		ma.wait()
		mb.wait()
		finish()
	})
}
