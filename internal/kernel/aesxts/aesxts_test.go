package aesxts

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/cpu"
	"github.com/softmkey/softmkey/internal/kernel/aesxts/roundlimit"
)

const seed = 1619

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed, 2007)) }

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func newKey(t testing.TB, tier cpu.Tier, key []byte) *Key {
	t.Helper()
	k, err := New(tier, make([]byte, MemorySize), key)
	if err != nil {
		t.Fatal(err)
	}
	return &k
}

// tiers are those that have a kernel to be compared with the plain twin.
func tiers() (ts []cpu.Tier) {
	for _, t := range cpu.Available() {
		if t != cpu.Generic && hasTier(t) {
			ts = append(ts, t)
		}
	}
	return ts
}

// checkRun compares a tier with the plain twin on one run, out of place and, if the
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

func TestAgainstTwin(t *testing.T) {
	for _, tier := range tiers() {
		for _, size := range []int{32, 64} {
			for _, decrypt := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%d/decrypt=%v", tier, size*4, decrypt), func(t *testing.T) {
					r := newRand()
					key := randomBytes(r, size)
					k, twin := newKey(t, tier, key), newKey(t, cpu.Generic, key)
					for unit := 16; unit <= 600; unit++ {
						for _, n := range []int{1, 2, 3, 4, 5, 9} {
							lo, hi := r.Uint64(), r.Uint64()
							checkRun(t, k, twin, decrypt, unit, n, unit, unit, lo, hi, r)
						}
					}
				})
			}
		}
	}
}

var benchUnits = []int{512, 520, 4096, 4160}

func BenchmarkRun(b *testing.B) {
	for _, tier := range cpu.Available() {
		for _, size := range []int{32, 64} {
			for _, decrypt := range []bool{false, true} {
				dir := "encrypt"
				if decrypt {
					dir = "decrypt"
				}
				prefix := fmt.Sprintf("%v/%d/%s/", tier, size*4, dir)
				k := newKey(b, tier, randomBytes(newRand(), size))
				buf := make([]byte, 64<<10)
				for _, unit := range benchUnits {
					b.Run(prefix+fmt.Sprint(unit), func(b *testing.B) {
						n := len(buf) / unit
						b.SetBytes(int64(n * unit))
						for b.Loop() {
							k.Crypt(decrypt, buf, unit, buf, unit, unit, n, 1, 0)
						}
					})
				}
				b.Run(prefix+"rounds", func(b *testing.B) {
					b.SetBytes(int64(len(buf)))
					for b.Loop() {
						if !roundlimit.Run(tier, size*4, decrypt, len(buf)/BlockSize) {
							b.Skip("no round instructions in this tier")
						}
					}
				})
			}
		}
	}
}
