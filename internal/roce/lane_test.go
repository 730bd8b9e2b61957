package roce

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
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

// TestIsolatedQP lets a request of an isolated QP wait for its memory. Another QP of the same ports
// transfers meanwhile, and the request succeeds in the end.
func TestIsolatedQP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, fast [2]*QP
		var slowMem, fastMem [2]*memory
		for i, p := range portPair(t) {
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
		slowMem[0].post(&Work{Op: ibv.WRWrite, Src: &waitingSource{source{b: data}, page}, Length: 10000, RKey: 1})
		slowMem[0].target = [2]int{1, 0}
		slow[0].Kick()
		synctest.Wait()
		for range 3 {
			fastMem[0].post(&Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 10000, RKey: 1})
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
		port := portPair(t)
		qp, finish := mixedQPs(t, port[0], port[1], rand.New(rand.NewPCG(1, 1)), 200)
		qp[0].Isolate()
		join(t, qp[0], qp[1], pairOptions{})
		qp[1].Isolate() // while packets are under way
		finish()
	})
}

// TestIsolatedDynamic lets a request of an isolated initiator wait for its memory, on a connection
// to an isolated target. Another initiator uses the same target and another one meanwhile.
func TestIsolatedDynamic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := portPair(t)
		ah, err := port[0].NewAH(0, port[1].gids()[0].addr, 0)
		if err != nil {
			t.Fatal(err)
		}
		o := pairOptions{timeout: 18, rdAtomic: 16}
		var dci, dct [2]*QP // the first of each is isolated
		var mem [2]*memory
		var at [2]*dctMemory
		for i := range 2 {
			dci[i], mem[i] = newDCI(t, port[0], o)
			dct[i], at[i] = newDCT(t, port[1], o)
			at[i].keys[1] = make([]byte, 10000)
		}
		dci[0].Isolate()
		dct[0].Isolate()
		page := make(chan struct{})
		data, read := pattern(10000, 3), make([]byte, 10000)
		post := func(from, to int, w Work) {
			w.AH, w.DestQPN, w.DCKey, w.RKey, w.Length = ah, dct[to].num, dcKey, 1, 10000
			mem[from].post(&w)
			mem[from].target[0]++
			dci[from].Kick()
		}
		post(0, 0, Work{Op: ibv.WRWrite, Src: &waitingSource{source{b: data}, page}})
		post(0, 0, Work{Op: ibv.WRRead, Dst: &sink{b: read}})
		synctest.Wait()
		other := pattern(10000, 4)
		for _, to := range []int{1, 0, 1} {
			post(1, to, Work{Op: ibv.WRWrite, Src: &source{b: other}})
		}
		mem[1].wait()
		mem[1].statuses(rdma.StatusSuccess, rdma.StatusSuccess, rdma.StatusSuccess)
		if !bytes.Equal(at[0].keys[1], other) || !bytes.Equal(at[1].keys[1], other) {
			t.Error("the memory differs")
		}
		close(page)
		mem[0].wait()
		mem[0].statuses(rdma.StatusSuccess, rdma.StatusSuccess)
		if !bytes.Equal(at[0].keys[1], data) || !bytes.Equal(read, data) {
			t.Error("the memory of the isolated target, or what was read of it, differs")
		}
	})
}
