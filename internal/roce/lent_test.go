package roce

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/softmkey/softmkey/rdma"
)

// keeper is a Handler that keeps every slice as long as it may: it copies nothing before
// EndBatch, or before the READ that the bytes belong to completes.
type keeper struct {
	*memory
	kept []keptBytes
	late []lateMessage
}

// keptBytes is payload and its destination.
type keptBytes struct{ dst, src []byte }

// lateMessage is a received message whose bytes are copied at the end of the batch.
type lateMessage struct {
	ev  RecvEvent
	mem []byte
}

// keptSink is a Sink of a keeper.
type keptSink struct {
	*sink
	k *keeper
}

func (s *keptSink) Write(p []byte) error {
	if s.n+len(p) > len(s.b) {
		return NAKInvalidRequest.Err()
	}
	s.k.kept = append(s.k.kept, keptBytes{s.b[s.n:][:len(p)], p})
	s.n += len(p)
	return nil
}

// Place returns nil, so that all payload comes through Write.
func (s *keptSink) Place(int) []byte { return nil }

func (k *keeper) wrap(s Sink) Sink {
	if plain, ok := s.(*sink); ok {
		return &keptSink{plain, k}
	}
	return s
}

func (k *keeper) flush() {
	for _, b := range k.kept {
		copy(b.dst, b.src)
	}
	k.kept = k.kept[:0]
	current := k.cur // of a message that has not ended
	for _, m := range k.late {
		k.cur = m.mem
		k.memory.Received(m.ev)
	}
	k.cur = current
	k.late = k.late[:0]
}

func (k *keeper) Next() *Work {
	w := k.memory.Next()
	if w != nil && w.Dst != nil {
		w.Dst = k.wrap(w.Dst)
	}
	return w
}

func (k *keeper) Completed(w *Work, st rdma.Status) rdma.Status {
	if s, ok := w.Dst.(*keptSink); ok {
		k.flush()
		w.Dst = s.sink
	}
	return k.memory.Completed(w, st)
}

func (k *keeper) OpenWrite(rkey uint32, va uint64, n uint32) (Sink, NAK) {
	s, nak := k.memory.OpenWrite(rkey, va, n)
	if nak != NAKNone {
		return nil, nak
	}
	return k.wrap(s), nak
}

func (k *keeper) EndWrite(s Sink, done bool) NAK {
	return k.memory.EndWrite(s.(*keptSink).sink, done)
}

func (k *keeper) BeginRecv(srq uint32) (Sink, NAK) {
	s, nak := k.memory.BeginRecv(srq)
	if nak != NAKNone {
		return nil, nak
	}
	return k.wrap(s), nak
}

func (k *keeper) Received(ev RecvEvent) NAK {
	k.late = append(k.late, lateMessage{ev, k.cur})
	return NAKNone
}

// EndBatch implements Handler.
func (k *keeper) EndBatch() NAK {
	k.flush()
	return NAKNone
}

// TestLentBytes sends many messages at once over networks that lose, reorder and duplicate
// packets, to Handlers that keep slices as long as they may. Packets arrive in trains, as
// from a socket. The receive
// buffer is overwritten after each train. Every byte must be right, and every message must
// complete once and in order.
func TestLentBytes(t *testing.T) {
	for seed := range seeds(60, 150, 20000) {
		rnd := rand.New(rand.NewPCG(seed, 23))
		there := netLink{Delay: 20 * time.Microsecond, Rate: int64(500*mbit) << rnd.IntN(5), Loss: []float64{0.001, 0.01, 0.03, 0.1}[rnd.IntN(4)]}
		if rnd.IntN(2) == 0 {
			there.Reorder, there.ReorderBy = 0.05, time.Duration(1+rnd.IntN(200))*time.Microsecond
		}
		if rnd.IntN(2) == 0 {
			there.Duplicate = 0.03
		}
		o := pairOptions{
			mtu: 256 << rnd.IntN(5), psn: [2]uint32{rnd.Uint32(), rnd.Uint32()}, rdAtomic: 1 + rnd.IntN(16),
			rnrTimer: 1, ipv6: rnd.IntN(2) == 0,
		}
		// All messages of a round have the same size, give or take, because packets use the
		// memory of others that are as long.
		size := 16 << rnd.IntN(13)
		inFlight := 1 << rnd.IntN(7)
		name := fmt.Sprintf("%d/%+v,size=%d,inflight=%d", seed, there, size, inFlight)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			l := newLinked(t, o, there, there, seed)
			l.trains = time.Duration(rnd.IntN(100)) * time.Microsecond
			for i := range l.qp {
				l.qp[i].h = &keeper{memory: l.mem[i]}
			}
			for range 4 {
				for _, m := range l.mem {
					m.began, m.ended, m.got = nil, nil, nil
					clear(m.keys)
					clear(m.stale)
				}
				finish := mixedOf(t, l.mem, rnd, inFlight, func() int { return size - rnd.IntN(4)*rnd.IntN(1+size/8) })
				l.post(0)
				l.post(1)
				if !l.run(time.Duration(l.clock)+10*time.Minute, nil) {
					t.Fatalf("stuck: %s", describe(l))
				}
				finish()
				l.idle()
			}
		}) {
			t.Fatal(name)
		}
	}
}
