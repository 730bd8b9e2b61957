package verbs_test

import (
	"testing"

	"github.com/softmkey/softmkey/verbs"
)

// TestNoAllocations checks that a message does not allocate at either end once the pools
// are filled: SEND and RECV, WRITE, READ, atomics, and a WRITE through a key that signs.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates, and makes pools forget")
	}
	a, b := pair(t, verbs.QPAttr{}, patient)
	done, done2 := a.dev.Polling(), b.dev.Polling()
	defer done()
	defer done2()
	src, dst := a.register(4096, verbs.LocalWrite), b.register(8*520, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	key := a.mkey(verbs.MKeyBlockSignature)
	wcs := make([]verbs.WC, 16)
	wait := func(s *side, n int) {
		for n > 0 {
			a.dev.Poll()
			b.dev.Poll()
			got := s.cq.Poll(wcs)
			for _, wc := range wcs[:got] {
				if wc.Status != verbs.StatusSuccess {
					t.Fatalf("request %d: %v: %v", wc.ID, wc.Status, wc.Err)
				}
			}
			n -= got
		}
	}
	a.complete(a.qp.Start().Signaled().Configure(key).List(src.SGE(0, 4096)).Signature(signature(nil, &dif)))
	wait(a, 1)
	recv := []verbs.RecvWR{{SGEs: []verbs.SGE{dst.SGE(0, 64)}}}
	message := func() {
		if _, err := b.qp.PostRecv(recv...); err != nil {
			t.Fatal(err)
		}
		c := a.qp.Start()
		c.Signaled().Send().SGE(src.SGE(0, 64))
		c.Signaled().Send().Inline()
		c.Signaled().Write(dst.RKey(), dst.Addr()).SGE(src.SGE(0, 4096))
		c.Signaled().Read(dst.RKey(), dst.Addr()).SGE(src.SGE(0, 4096))
		c.Signaled().FetchAdd(dst.RKey(), dst.Addr(), 1).SGE(src.SGE(0, 8))
		c.Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 8*520))
		if _, err := b.qp.PostRecv(recv...); err != nil {
			t.Fatal(err)
		}
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		c.Abort()
		wait(b, 2)
		wait(a, 6)
	}
	for range 100 {
		message()
	}
	// Allow less than one allocation in six messages of a kind, because a garbage
	// collection may empty a pool.
	if n := testing.AllocsPerRun(1000, message); n >= 1 {
		t.Errorf("%v allocations for 6 messages", n)
	}
}
