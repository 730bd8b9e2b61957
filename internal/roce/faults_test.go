package roce

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
)

// mixed posts n random operations on both sides, and returns a function that checks the
// results.
func mixed(t testing.TB, mem [2]*memory, rnd *rand.Rand, n int) (finish func()) {
	return mixedOf(t, mem, rnd, n, func() int {
		size := rnd.IntN(5) * rnd.IntN(20000)
		if rnd.IntN(4) == 0 {
			size = rnd.IntN(100)
		}
		return size
	})
}

// mixedOf is mixed with messages of up to 100000 bytes whose sizes come from sizeOf.
func mixedOf(t testing.TB, mem [2]*memory, rnd *rand.Rand, n int, sizeOf func() int) (finish func()) {
	var checks []func()
	counts := [2]int{}
	var want [2][]received
	for side := range 2 {
		me, other := mem[side], mem[1-side]
		counter := make([]byte, 8)
		other.keys[1] = counter
		sum := uint64(0)
		for i := range n {
			size := sizeOf()
			data := pattern(size, rnd.Uint64())
			key := uint32(1000 + i)
			w := &Work{Length: uint32(size), RKey: key, Src: &source{b: data}}
			switch w.Op = []ibv.WROp{ibv.WRWrite, ibv.WRWriteImm, ibv.WRSend, ibv.WRSendImm, ibv.WRSendInv, ibv.WRRead, ibv.WRRead, ibv.WRFetchAdd, ibv.WRCmpSwap, WRLocal, ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd}[rnd.IntN(12)]; w.Op {
			case ibv.WRWrite, ibv.WRWriteImm:
				region := make([]byte, size)
				other.keys[key] = region
				checks = append(checks, func() {
					if !bytes.Equal(region, data) {
						t.Errorf("side %d, operation %d: WRITE of %d bytes differs", side, i, size)
					}
				})
				if w.Op == ibv.WRWriteImm {
					w.Imm = uint32(i)
					want[1-side] = append(want[1-side], received{ev: RecvEvent{Op: ibv.WRWriteImm, Length: uint32(size), HasImm: true, Imm: uint32(i)}, work: w})
				}
			case ibv.WRSend, ibv.WRSendImm, ibv.WRSendInv:
				ev := RecvEvent{Op: ibv.WRSend, Length: uint32(size)}
				if w.Op == ibv.WRSendImm {
					w.Imm = uint32(i)
					ev.HasImm, ev.Imm = true, uint32(i)
				}
				if w.Op == ibv.WRSendInv {
					w.InvKey = uint32(100000 + i)
					other.keys[w.InvKey] = nil
					ev.HasInv, ev.InvKey = true, w.InvKey
				}
				want[1-side] = append(want[1-side], received{ev: ev, data: data, work: w})
			case ibv.WRRead:
				other.keys[key] = data
				dst := make([]byte, size)
				w.Dst = &sink{b: dst}
				w.RemoteAddr = lowestDivided * uint64(i%2)
				checks = append(checks, func() {
					if !bytes.Equal(dst, data) {
						t.Errorf("side %d, operation %d: READ of %d bytes differs", side, i, size)
					}
				})
			case ibv.WRFetchAdd:
				w.RKey, w.CompareAdd = 1, uint64(i)+1
				orig := sum
				sum += uint64(i) + 1
				checks = append(checks, func() {
					if w.Orig != orig {
						t.Errorf("side %d, operation %d: fetch-and-add met %d, want %d", side, i, w.Orig, orig)
					}
				})
			case ibv.WRCmpSwap:
				w.RKey, w.CompareAdd, w.Swap = 1, sum, sum+7
				orig := sum
				sum += 7
				checks = append(checks, func() {
					if w.Orig != orig {
						t.Errorf("side %d, operation %d: compare-and-swap met %d, want %d", side, i, w.Orig, orig)
					}
				})
			case ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd:
				w.RKey, w.Length, w.CompareAdd, w.CompareMask, w.Swap, w.SwapMask = 1, 8, rnd.Uint64(), rnd.Uint64()&rnd.Uint64(), rnd.Uint64(), rnd.Uint64()
				if rnd.IntN(2) == 0 {
					w.CompareAdd = sum
				}
				orig := sum
				sum, _ = modelAtomic(&Atomic{Op: w.Op, Size: 8, CompareAdd: w.CompareAdd, Swap: w.Swap, CompareMask: w.CompareMask, SwapMask: w.SwapMask}, orig)
				checks = append(checks, func() {
					if w.Orig != orig {
						t.Errorf("side %d, operation %d: %v met %#x, want %#x", side, i, w.Op, w.Orig, orig)
					}
				})
			}
			counts[side]++
			me.post(w)
		}
		checks = append(checks, func() {
			if got := binary.NativeEndian.Uint64(counter); got != sum {
				t.Errorf("side %d: the counter ended at %d, want %d", side, got, sum)
			}
		})
	}
	for side := range 2 {
		for range want[side] {
			mem[side].recv(make([]byte, 100000))
		}
		mem[side].target = [2]int{counts[side], len(want[side])}
	}
	return func() {
		t.Helper()
		for side := range 2 {
			mem[side].allSucceeded(counts[side])
			got := mem[side].got
			if len(got) != len(want[side]) {
				t.Errorf("side %d: %d messages, want %d", side, len(got), len(want[side]))
				continue
			}
			for i := range got {
				want[side][i].ev.PSN = lastPSN(want[side][i].work)
				if got[i].ev != want[side][i].ev || got[i].ev.Op == ibv.WRSend && !bytes.Equal(got[i].data, want[side][i].data) {
					t.Errorf("side %d: message %d: %+v, want %+v", side, i, got[i].ev, want[side][i].ev)
					break
				}
			}
		}
		for _, c := range checks {
			c()
		}
	}
}
