package aesxts

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// benchUnits are the sizes of data units of memory keys.
var benchUnits = []int{512, 520, 4096, 4160}

// BenchmarkRun processes runs of 64 KiB, in place and in cache.
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
			}
		}
	}
}
