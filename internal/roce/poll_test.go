package roce

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// polledPair returns the ports of two connected QPs in a network inside the process. The
// first port is polled.
func polledPair(t *testing.T, wake func()) (port []*Port, qp [2]*QP, mem [2]*memory, done func()) {
	port = portPair(t)
	for i, p := range port {
		qp[i], mem[i] = newQP(t, p, string(rune('a'+i)))
		mem[i].keys[1] = make([]byte, 100)
	}
	join(t, qp[0], qp[1], pairOptions{timeout: 20})
	synctest.Wait()
	done = port[0].Polling(wake)
	// The receive goroutine is blocked and handles one more batch.
	mem[1].post(write(100))
	mem[1].target = [2]int{1, 0}
	qp[1].Kick()
	mem[1].wait()
	synctest.Wait()
	return port, qp, mem, done
}

func write(n int) *Work {
	return &Work{Op: ibv.WRWrite, Src: &source{b: make([]byte, n)}, Length: uint32(n), RKey: 1}
}

// TestPollerSends checks that the transmit goroutine leaves sending and the timers to a
// goroutine that polls and can be woken, however long that takes.
func TestPollerSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken atomic.Int64
		port, qp, mem, done := polledPair(t, func() { woken.Add(1) })
		before := port[0].Counters().SentPackets
		sent := func() uint64 { return port[0].Counters().SentPackets - before }
		mem[0].post(write(100))
		qp[0].Wake()
		time.Sleep(10 * pollLapse)
		if n := sent(); n != 0 || woken.Load() == 0 {
			t.Fatalf("%d packets sent by another goroutine; woken %d times", n, woken.Load())
		}
		port[0].Poll()
		if n := sent(); n != 1 {
			t.Fatalf("%d packets sent by Poll, want 1", n)
		}
		synctest.Wait()
		// The acknowledgement has arrived but nobody takes it, so a timer is due.
		woken.Store(0)
		time.Sleep(time.Second)
		if n := sent(); n != 1 || woken.Load() == 0 || port[0].Counters().Probes != 0 {
			t.Fatalf("%d packets sent, %d probes by another goroutine; woken %d times", n, port[0].Counters().Probes, woken.Load())
		}
		port[0].Poll()
		synctest.Wait()
		mem[0].statuses(rdma.StatusSuccess)
		// The polling goroutine is not woken when there is no work.
		woken.Store(0)
		time.Sleep(10 * time.Second)
		if n := woken.Load(); n > 1 { // the lazy timer of the completed WRITE may wake it once
			t.Errorf("woken %d times without work", n)
		}
		// When the program has stopped polling, the port's own goroutines take
		// over.
		done()
		mem[0].target = [2]int{2, 0}
		mem[0].post(write(100))
		qp[0].Wake()
		mem[0].wait()
		mem[0].statuses(rdma.StatusSuccess, rdma.StatusSuccess)
	})
}

// TestPollerPauses checks that the transmit goroutine leaves sending and the timers to a
// program that polls, and takes them over when the program makes no calls of Poll.
func TestPollerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port, qp, mem, done := polledPair(t, nil)
		defer done()
		port[0].Poll()
		before := port[0].Counters().SentPackets
		mem[0].post(write(100))
		qp[0].Wake()
		time.Sleep(pollLapse / 2)
		if n := port[0].Counters().SentPackets - before; n != 0 {
			t.Fatalf("%d packets sent by another goroutine", n)
		}
		time.Sleep(pollLapse)
		if n := port[0].Counters().SentPackets - before; n != 1 {
			t.Fatalf("%d packets sent during the pause, want 1", n)
		}
		time.Sleep(time.Second)
		if n := port[0].Counters().Probes; n == 0 {
			t.Error("no timer ran during the pause")
		}
		port[0].Poll()
		mem[0].statuses(rdma.StatusSuccess)
	})
}
