package aesxts

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/race"
)

const seed = 1619

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed, 2007)) }

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n:n]
}

func newKey(t testing.TB, tier cpu.Tier, key []byte) *Key {
	t.Helper()
	k := New(tier, make([]byte, MemorySize), key)
	return &k
}

// checkRun compares a tier with the plain Go code on one run, out of place and, if the
// strides allow, in place.
func checkRun(t *testing.T, k, twin *Key, decrypt bool, unit, n, dstStride, srcStride int, lo, hi uint64, r *rand.Rand) {
	t.Helper()
	src := randomBytes(r, (n-1)*srcStride+unit)
	dst := randomBytes(r, (n-1)*dstStride+unit)
	want := bytes.Clone(dst)
	keep := bytes.Clone(src)
	twin.Crypt(decrypt, want, dstStride, src, srcStride, unit, n, lo, hi)
	k.Crypt(decrypt, dst, dstStride, src, srcStride, unit, n, lo, hi)
	what := fmt.Sprintf("decrypt=%v unit=%d n=%d strides %d<-%d tweak %#x:%#x", decrypt, unit, n, dstStride, srcStride, hi, lo)
	if !bytes.Equal(dst, want) {
		t.Fatalf("%s: differs from the plain twin at byte %d", what, firstDifference(dst, want))
	}
	if !bytes.Equal(src, keep) {
		t.Fatalf("%s: the source was changed", what)
	}
	if dstStride == srcStride {
		k.Crypt(decrypt, src, srcStride, src, srcStride, unit, n, lo, hi)
		twin.Crypt(decrypt, keep, srcStride, keep, srcStride, unit, n, lo, hi)
		if !bytes.Equal(src, keep) {
			t.Fatalf("%s: in place: differs from the plain twin at byte %d", what, firstDifference(src, keep))
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// runCheck is checkRun for a tier, a key and a direction.
type runCheck func(unit, n, dstStride, srcStride int, lo, hi uint64)

// eachKernel runs f for each tier with assembly, each key size and each direction, by
// name.
func eachKernel(t *testing.T, f func(r *rand.Rand, check runCheck)) {
	for _, tier := range cpu.Available() {
		if !hasTier(tier) {
			continue
		}
		for _, size := range []int{32, 64} {
			for _, decrypt := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/decrypt=%v", tier, size*4, decrypt), func(t *testing.T) {
					r := newRand()
					key := randomBytes(r, size)
					k, twin := newKey(t, tier, key), newKey(t, cpu.Generic, key)
					f(r, func(unit, n, dstStride, srcStride int, lo, hi uint64) {
						t.Helper()
						checkRun(t, k, twin, decrypt, unit, n, dstStride, srcStride, lo, hi, r)
					})
				})
			}
		}
	}
}

// TestEveryTierHasAKernel fails if a tier is not tested because it lacks a kernel.
func TestEveryTierHasAKernel(t *testing.T) {
	for _, tier := range cpu.Available() {
		if tier != cpu.Generic && !hasTier(tier) {
			t.Errorf("no kernel for %v", tier)
		}
	}
}

// TestLengths compares units of 16 to 600 bytes, in runs near 4 and 8 units, the sizes of
// the groups in which kernels process tweaks and ciphertext stealing.
func TestLengths(t *testing.T) {
	eachKernel(t, func(r *rand.Rand, check runCheck) {
		step := 1
		if race.Enabled {
			step = 7
		}
		for unit := 16; unit <= 600; unit += step {
			for _, n := range []int{1, 2 + unit%2, 4 + unit%5, 9 + unit%4} {
				check(unit, n, unit, unit, r.Uint64(), r.Uint64())
			}
		}
	})
}

// TestUnits compares the usual units of storage, with and without fields, and their neighbours, and runs of
// more units than a group has, with and without ciphertext stealing.
func TestUnits(t *testing.T) {
	eachKernel(t, func(r *rand.Rand, check runCheck) {
		for _, runs := range []struct{ units, counts []int }{
			{[]int{1023, 1024, 1032, 1040, 1536, 2049, 4048, 4095, 4096, 4097, 4104, 4112, 4160, 4168, 5000}, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}},
			{[]int{16, 17, 31, 100, 512, 520, 528}, []int{31, 32, 33, 100, 127}},
		} {
			for _, unit := range runs.units {
				for _, n := range runs.counts {
					check(unit, n, unit, unit, r.Uint64(), r.Uint64())
				}
			}
		}
	})
}

// TestManyCalls compares runs that Crypt divides into several calls, with a carry in the
// tweak number at the division.
func TestManyCalls(t *testing.T) {
	eachKernel(t, func(r *rand.Rand, check runCheck) {
		units := []int{65536, 520, callBytes - 1, callBytes + 24}
		if race.Enabled {
			units = units[:1]
		}
		for _, unit := range units {
			most := max(1, callBytes/unit)
			check(unit, most+2, unit, unit, -uint64(most), 5)
		}
	})
}

// TestStrides compares runs with gaps of any size in the source, the destination or both.
// The gaps must not change.
func TestStrides(t *testing.T) {
	eachKernel(t, func(r *rand.Rand, check runCheck) {
		for range 400 {
			unit, n := 16+r.IntN(1100), 1+r.IntN(12)
			s := unit + r.IntN(3)*r.IntN(70)
			d := unit + r.IntN(3)*r.IntN(70)
			if r.IntN(3) == 0 {
				d = s
			}
			check(unit, n, d, s, r.Uint64(), r.Uint64())
		}
	})
}

// TestTweakCarries compares runs whose tweak numbers carry from the low half to the high
// half, and out of the high half, at each position in a run.
func TestTweakCarries(t *testing.T) {
	eachKernel(t, func(r *rand.Rand, check runCheck) {
		for back := range uint64(20) {
			for _, hi := range []uint64{0, 1<<63 - 1, 1<<64 - 1} {
				for _, unit := range []int{16, 520} {
					check(unit, 19, unit, unit, -back, hi)
				}
			}
		}
	})
}

// TestClose searches for bytes of a key that remain after Close.
func TestClose(t *testing.T) {
	for _, tier := range cpu.Available() {
		t.Run(tier.String(), func(t *testing.T) {
			mem := make([]byte, MemorySize)
			k := New(tier, mem, randomBytes(newRand(), 64))
			if k.Closed() {
				t.Error("closed from the start")
			}
			if bytes.Equal(mem, make([]byte, MemorySize)) {
				t.Error("the key is not in its memory")
			}
			k.Close()
			if !k.Closed() || !bytes.Equal(mem, make([]byte, MemorySize)) {
				t.Error("something is left")
			}
			k.Close()
		})
	}
}

func TestDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 8*520)
	for _, tier := range cpu.Available() {
		k := newKey(t, tier, randomBytes(newRand(), 64))
		for _, decrypt := range []bool{false, true} {
			if n := testing.AllocsPerRun(100, func() {
				k.Crypt(decrypt, buf, 520, buf, 520, 520, 8, 1, 0)
			}); n != 0 {
				t.Errorf("%v, decrypt=%v: %v allocations", tier, decrypt, n)
			}
		}
	}
}

// FuzzAgainstTwin compares runs that the fuzzer chooses. The bytes are src followed by
// dst.
func FuzzAgainstTwin(f *testing.F) {
	f.Add(make([]byte, 2000), uint16(520), uint8(3), uint8(0), uint8(8), uint64(1<<64-1), uint64(0), false)
	f.Add(make([]byte, 300), uint16(17), uint8(9), uint8(1), uint8(0), uint64(0), uint64(7), true)
	f.Fuzz(func(t *testing.T, data []byte, unit uint16, n, srcGap, dstGap uint8, lo, hi uint64, decrypt bool) {
		u, s, d := int(unit), int(unit)+int(srcGap), int(unit)+int(dstGap)
		if u < BlockSize || n == 0 {
			return
		}
		srcLen, dstLen := (int(n)-1)*s+u, (int(n)-1)*d+u
		if srcLen+dstLen > len(data) {
			return
		}
		src, dst := data[:srcLen], data[srcLen:][:dstLen]
		r := newRand()
		for _, tier := range cpu.Available() {
			for _, size := range []int{32, 64} {
				key := randomBytes(r, size)
				got, want := bytes.Clone(dst), bytes.Clone(dst)
				newKey(t, tier, key).Crypt(decrypt, got, d, src, s, u, int(n), lo, hi)
				newKey(t, cpu.Generic, key).Crypt(decrypt, want, d, src, s, u, int(n), lo, hi)
				if !bytes.Equal(got, want) {
					t.Fatalf("%v, %d-byte key: differs from the plain twin at byte %d", tier, size, firstDifference(got, want))
				}
			}
		}
	})
}
