//go:build !purego

package roundlimit

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:generate sh -c "cd ../../_asm/aesxts && go run . -tier limit -pkg roundlimit -out ../../aesxts/roundlimit/roundlimit_amd64.s"

// Each iteration of a loop processes 64 blocks in 16 registers with AVX-512, and 12 registers
// of two blocks with VAES or one with AES-NI.

func encrypt128AVX512(n uint64)
func decrypt128AVX512(n uint64)
func encrypt256AVX512(n uint64)
func decrypt256AVX512(n uint64)
func encrypt128VAES(n uint64)
func encrypt128AESNI(n uint64)
func decrypt128VAES(n uint64)
func decrypt128AESNI(n uint64)
func encrypt256VAES(n uint64)
func encrypt256AESNI(n uint64)
func decrypt256VAES(n uint64)
func decrypt256AESNI(n uint64)

func find(t cpu.Tier, keyBits int, decrypt bool) (loop func(n uint64), blocks int) {
	type kind struct {
		t       cpu.Tier
		bits    int
		decrypt bool
	}
	switch (kind{t, keyBits, decrypt}) {
	case kind{cpu.AVX512, 128, false}:
		return encrypt128AVX512, 64
	case kind{cpu.AVX512, 128, true}:
		return decrypt128AVX512, 64
	case kind{cpu.AVX512, 256, false}:
		return encrypt256AVX512, 64
	case kind{cpu.AVX512, 256, true}:
		return decrypt256AVX512, 64
	case kind{cpu.VAES, 128, false}:
		return encrypt128VAES, 24
	case kind{cpu.AVX2, 128, false}:
		return encrypt128AESNI, 12
	case kind{cpu.VAES, 128, true}:
		return decrypt128VAES, 24
	case kind{cpu.AVX2, 128, true}:
		return decrypt128AESNI, 12
	case kind{cpu.VAES, 256, false}:
		return encrypt256VAES, 24
	case kind{cpu.AVX2, 256, false}:
		return encrypt256AESNI, 12
	case kind{cpu.VAES, 256, true}:
		return decrypt256VAES, 24
	case kind{cpu.AVX2, 256, true}:
		return decrypt256AESNI, 12
	}
	return nil, 0
}
