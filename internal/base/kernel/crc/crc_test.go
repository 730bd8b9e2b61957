package crc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/ref"
)

// newRand returns a random generator and logs its seed.
func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func fill(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// eachTier runs f for every tier that this machine can run, by name.
func eachTier(t *testing.T, f func(t *testing.T, tier cpu.Tier)) {
	for _, tier := range cpu.Available() {
		t.Run(tier.String(), func(t *testing.T) { f(t, tier) })
	}
}

// refField computes a field bit by bit.
func refField(kind Kind, ones bool, block []byte, tag uint64) []byte {
	var seed uint64
	if ones {
		seed = ^seed
	}
	f := make([]byte, kind.FieldSize())
	switch kind {
	case T10:
		binary.BigEndian.PutUint64(f, tag|uint64(ref.T10DIF(uint16(seed), block))<<48)
	case CSUM:
		binary.BigEndian.PutUint64(f, tag|uint64(ref.CSUM(uint16(seed), block))<<48)
	case CRC32:
		binary.BigEndian.PutUint32(f, ref.CRC32(uint32(seed), block))
	case CRC32C:
		binary.LittleEndian.PutUint32(f, ref.CRC32C(uint32(seed), block))
	case CRC64:
		binary.LittleEndian.PutUint64(f, ref.CRC64(seed, block))
	}
	return f
}

// refRun computes a run with the reference code.
func refRun(kind Kind, ones bool, size, n int, j *Job) [][]byte {
	var fields [][]byte
	tag := j.Tag
	for i := range n {
		if kind > CSUM {
			tag = 0
		}
		fields = append(fields, refField(kind, ones, j.Src[i*j.SrcStride:][:size], tag))
		tag = tag&^0xFFFFFFFF | (tag+uint64(j.Step))&0xFFFFFFFF
	}
	return fields
}

// layout describes a run in memory: offsets and strides.
type layout struct {
	size, n                           int
	srcOff, dstOff                    int
	srcStride, dstStride, fieldStride int
	interleaved                       bool // fields are between the blocks
}

// checkLayout generates, verifies and sums one run in every way. It compares the results,
// and the memory around them, with the reference.
func checkLayout(t *testing.T, tier cpu.Tier, kind Kind, ones bool, l layout, r *rand.Rand) {
	t.Helper()
	field := kind.FieldSize()
	p := newPlan(tier, kind, l.size, ones)
	src := make([]byte, l.srcOff+l.n*l.srcStride+64)
	dst := make([]byte, l.dstOff+l.n*l.dstStride+64)
	fill(r, src)
	fill(r, dst)
	tag := r.Uint64() >> 16
	if r.IntN(4) == 0 {
		tag |= 0xFFFFFFFC // makes the reference tag wrap
	}
	for _, copies := range []bool{false, true} {
		j := Job{Src: src[l.srcOff:], SrcStride: l.srcStride, Tag: tag, Step: uint32(r.IntN(2))}
		home, homeStride := src, l.srcStride
		base := l.srcOff
		if copies {
			j.Dst, j.DstStride = dst[l.dstOff:], l.dstStride
			home, homeStride, base = dst, l.dstStride, l.dstOff
		}
		separate := make([]byte, l.n*l.fieldStride+8)
		fill(r, separate)
		fields, fieldStride, fieldBase := separate, l.fieldStride, 0
		if l.interleaved {
			fields, fieldStride, fieldBase = home, homeStride, base+l.size
		}

		wantSrc, wantDst, wantSep := bytes.Clone(src), bytes.Clone(dst), bytes.Clone(separate)
		wantFields := refRun(kind, ones, l.size, l.n, &j)
		target := wantSep
		if l.interleaved {
			target = wantSrc
			if copies {
				target = wantDst
			}
		}
		for i, f := range wantFields {
			if copies {
				copy(wantDst[l.dstOff+i*l.dstStride:][:l.size], src[l.srcOff+i*l.srcStride:])
			}
			copy(target[fieldBase+i*fieldStride:], f)
		}

		want := make([]uint64, l.n)
		check := func(op string) {
			t.Helper()
			for i, f := range wantFields {
				if got := binary.LittleEndian.AppendUint64(nil, want[i]); !bytes.Equal(got[:field], f) ||
					!bytes.Equal(got[field:], make([]byte, 8-field)) {
					t.Fatalf("%v %+v ones=%v copies=%v: %s: block %d: field % x, want % x", kind, l, ones, copies, op, i, got, f)
				}
			}
			if !bytes.Equal(src, wantSrc) || !bytes.Equal(dst, wantDst) || !bytes.Equal(separate, wantSep) {
				t.Fatalf("%v %+v ones=%v copies=%v: %s: memory differs", kind, l, ones, copies, op)
			}
		}
		j.Fields, j.FieldStride = fields[fieldBase:], fieldStride
		p.Generate(want, &j)
		check("generate")
		clear(want)
		p.Sum(want, &j)
		check("sum")

		// The fields now match the source, wherever they are.
		clear(want)
		if diff := p.Verify(want, &j); diff != 0 {
			t.Fatalf("%v %+v ones=%v copies=%v: verify: %#x", kind, l, ones, copies, diff)
		}
		check("verify")
		// Exactly the wrong bits are returned.
		bad, flip := r.IntN(l.n), byte(1)<<r.IntN(8)
		at := r.IntN(field)
		j.Fields[bad*fieldStride+at] ^= flip
		if diff := p.Verify(want, &j); diff != uint64(flip)<<(8*at) {
			t.Fatalf("%v %+v ones=%v copies=%v: bit flipped in block %d: %#x", kind, l, ones, copies, bad, diff)
		}
		j.Fields[bad*fieldStride+at] ^= flip
		check("verify of a bad field")
	}
}

// Every length up to several vectors, and those near the lengths at which a kernel or its
// caller changes its method, for few blocks and for many.
func TestLengths(t *testing.T) {
	var sizes []int
	for size := 8; size <= 328; size += 8 {
		sizes = append(sizes, size)
	}
	for _, around := range []int{512, 1024, 4096, tableWords * 8, piece * 2, piece * pieces} {
		for d := -16; d <= 16; d += 8 {
			sizes = append(sizes, around+d)
		}
	}
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		r := newRand(t, 1)
		for kind := range kinds {
			for i, size := range sizes {
				n := 1 + i%19
				if size > 8192 {
					n = 1 + i%2
				}
				l := layout{size: size, n: n, srcStride: size + 8, dstStride: size + 8, fieldStride: 8, interleaved: i%2 == 0}
				checkLayout(t, tier, kind, i%3 == 0, l, r)
			}
		}
	})
}

// Every number of blocks near the sizes of groups.
func TestBlockCounts(t *testing.T) {
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		r := newRand(t, 2)
		for kind := range kinds {
			for n := 1; n <= 35; n++ {
				l := layout{size: 72, n: n, srcStride: 80, dstStride: 72, fieldStride: 16, interleaved: false}
				checkLayout(t, tier, kind, n%2 == 0, l, r)
			}
		}
	})
}

// Blocks of the sizes with special kernels, at every phase in a cache line, and in
// numbers near those that are processed together.
func TestCacheLinePhases(t *testing.T) {
	counts := []int{1, 7, 8, 9, 31, 33, 64, 65, 72}
	switch {
	case os.Getenv("SOFTMKEY_LONG") != "":
		counts = []int{1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 72, 100, 128, 200}
	case testing.Short():
		counts = []int{1, 8, 9, 33} // also for an emulated machine
	}
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		r := newRand(t, 5)
		for kind := range kinds {
			unit := kind.FieldSize()
			for i, n := range counts {
				for phase := range 64/unit + 1 {
					l := layout{
						size: 512, n: n, srcOff: unit * phase, dstOff: unit * r.IntN(8),
						srcStride: 512 + unit*(1+i%4), dstStride: 520, fieldStride: 8, interleaved: phase%2 == 0,
					}
					if phase == 64/unit {
						l.srcOff = 2 // no phase: unaligned
					}
					checkLayout(t, tier, kind, n%2 == 0, l, r)
					// Contiguous, and far apart.
					l.interleaved, l.srcStride = false, []int{512, 4096 + unit}[i%2]
					checkLayout(t, tier, kind, n%2 == 1, l, r)
					if n < 10 {
						l.size, l.srcStride, l.dstStride = 1024+512*r.IntN(7), 4104+8*(i%3), 4104
						checkLayout(t, tier, kind, n%2 == 0, l, r)
					}
				}
			}
		}
	})
}

// Random addresses, strides and sizes.
func TestLayouts(t *testing.T) {
	eachTier(t, func(t *testing.T, tier cpu.Tier) {
		r := newRand(t, 3)
		for range 400 {
			kind := Kind(r.IntN(int(kinds)))
			size := 8 * (1 + r.IntN(80))
			if r.IntN(8) == 0 {
				size = []int{512, 520, 4048, 4096, 4160}[r.IntN(5)]
			}
			l := layout{
				size: size, n: 1 + r.IntN(20),
				srcOff: r.IntN(65), dstOff: r.IntN(65),
				srcStride: size + 8 + r.IntN(100), dstStride: size + 8 + r.IntN(100),
				fieldStride: 8 + r.IntN(70), interleaved: r.IntN(2) == 0,
			}
			checkLayout(t, tier, kind, r.IntN(2) == 0, l, r)
		}
	})
}
