package verbs_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
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
	src, dst := a.register(4096, rdma.LocalWrite), b.register(8*520, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)
	key := a.mkey(mkey.BlockSignature)
	wcs := make([]rdma.WC, 16)
	wait := func(s *side, n int) {
		for n > 0 {
			a.dev.Poll()
			b.dev.Poll()
			got := s.cq.Poll(wcs)
			for _, wc := range wcs[:got] {
				if wc.Status != rdma.StatusSuccess {
					t.Fatalf("request %d: %v: %v", wc.ID, wc.Status, wc.Err)
				}
			}
			n -= got
		}
	}
	a.complete(a.qp.Start().Signaled().Configure(key).List(src.SGE(0, 4096)).Signature(signature(nil, &dif)))
	wait(a, 1)
	recv := []verbs.RecvWR{{SGEs: []rdma.SGE{dst.SGE(0, 64)}}}
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
		wait(b, 2)
		wait(a, 6)
	}
	for range 100 {
		message()
	}
	// Allow less than one allocation in six messages of a kind, because a garbage
	// collection may empty a pool.
	if n := testing.AllocsPerRun(1000, message); n >= 1 {
		t.Errorf("%v allocations for 6 messages; in 100 more of them:\n%s", n, allocations(func() {
			for range 100 {
				message()
			}
		}))
	}
}

// allocations runs f and returns where the process allocated meanwhile, and how often.
func allocations(f func()) string {
	sites := func() map[[32]uintptr]int64 {
		runtime.GC() // a profile has what was allocated before the last collection but one
		runtime.GC()
		records := make([]runtime.MemProfileRecord, 1<<16)
		n, _ := runtime.MemProfile(records, true)
		m := make(map[[32]uintptr]int64)
		for _, r := range records[:n] {
			m[r.Stack0] = r.AllocObjects
		}
		return m
	}
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	before := sites()
	runtime.MemProfileRate = 1
	f()
	runtime.MemProfileRate = 0
	var text strings.Builder
	for stack, n := range sites() {
		if n -= before[stack]; n == 0 {
			continue
		}
		fmt.Fprintf(&text, "%d:", n)
		frames := runtime.CallersFrames(stack[:])
		for range 8 {
			frame, more := frames.Next()
			fmt.Fprintf(&text, " %s:%d", frame.Function, frame.Line)
			if !more {
				break
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}
