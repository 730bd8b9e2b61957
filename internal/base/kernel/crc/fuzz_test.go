package crc

import (
	"github.com/softmkey/softmkey/internal/base/cpu"
	"math/rand/v2"
	"testing"
)

// FuzzKernels compares every tier with the reference, on layouts and data that the fuzzer
// chooses.
func FuzzKernels(f *testing.F) {
	f.Add(uint8(0), uint16(64), uint8(9), uint8(0), uint8(0), uint8(0), uint64(1))
	f.Add(uint8(1), uint16(65), uint8(4), uint8(1), uint8(7), uint8(3), uint64(2))
	f.Add(uint8(4), uint16(600), uint8(2), uint8(63), uint8(1), uint8(64), uint64(3))
	// Enough blocks of 512 bytes for rounds of whole cache lines.
	f.Add(uint8(0), uint16(63), uint8(70), uint8(8), uint8(0), uint8(0), uint64(4))
	f.Add(uint8(2), uint16(63), uint8(130), uint8(4), uint8(0), uint8(4), uint64(5))
	f.Add(uint8(4), uint16(63), uint8(33), uint8(16), uint8(0), uint8(0), uint64(6))
	f.Fuzz(func(t *testing.T, kind uint8, quads uint16, n, srcOff, dstOff, gap uint8, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		size := 8 * (1 + int(quads)%1100)
		l := layout{
			// The reference is slow, and the fuzzer ends an input that takes ten seconds: 72 KiB of data.
			size: size, n: 1 + int(n)%min(140, 1+(72<<10)/size),
			srcOff: int(srcOff), dstOff: int(dstOff),
			srcStride: size + 8 + int(gap), dstStride: size + 8 + int(srcOff^gap),
			fieldStride: 8 + int(gap), interleaved: seed&1 != 0,
		}
		for _, tier := range cpu.Available() {
			checkLayout(t, tier, Kind(kind)%kinds, seed&2 != 0, l, r)
		}
	})
}
