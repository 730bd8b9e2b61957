package roce

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// TestAtomicNext compares the results of atomics with a model that works bit by bit.
func TestAtomicNext(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	numbers := []uint64{0, 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<64 - 1, 0x8000000080000000, 0xf0f0f0f0f0f0f0f0}
	number := func(of uint64) uint64 {
		switch i := rnd.IntN(20); {
		case i < len(numbers):
			return numbers[i]
		case i < 12:
			return of
		}
		return rnd.Uint64()
	}
	for range 100_000 {
		a := Atomic{Op: []ibv.WROp{ibv.WRCmpSwap, ibv.WRFetchAdd, ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd}[rnd.IntN(4)], Size: 8}
		old := number(0)
		if a.Op.Masked() && rnd.IntN(2) == 0 {
			a.Size = 4
			old &= 1<<32 - 1
		}
		a.CompareAdd, a.Swap, a.CompareMask, a.SwapMask = number(old), number(old), number(^old), number(old)
		want, _ := modelAtomic(&a, old)
		got, store := a.Next(old)
		if !store {
			got = old
		}
		if got != want {
			t.Fatalf("%+v of %#x: %#x, the model has %#x", a, old, got, want)
		}
	}
}

// TestMaskedWithoutAnswer sends a masked atomic to a peer that does not know it, and drops it.
func TestMaskedWithoutAnswer(t *testing.T) {
	l := alone(t, 0, pairOptions{retry: 1, timeout: 12})
	l.post(0, &Work{Op: ibv.WRMaskedFetchAdd, Length: 8, RKey: 1})
	l.sent()
	for range 8 {
		l.clock += int64(AckTimeout(12))
		l.port[0].expire(l.clock)
		l.sent()
	}
	l.m.statuses(rdma.StatusRetryExcErr)
	if err := l.m.ended[0].w.Err.Error(); !strings.HasSuffix(err, "the request is a masked atomic, opcode 0xd9: the specification has none, and only devices of softmkey know it") {
		t.Error(err)
	}
}
