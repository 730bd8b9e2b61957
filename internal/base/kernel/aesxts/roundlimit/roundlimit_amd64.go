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

type kind struct {
	t       cpu.Tier
	keyBits int
	decrypt bool
}

var loops = map[kind]func(n uint64){
	{cpu.AVX512, 128, false}: encrypt128AVX512,
	{cpu.AVX512, 128, true}:  decrypt128AVX512,
	{cpu.AVX512, 256, false}: encrypt256AVX512,
	{cpu.AVX512, 256, true}:  decrypt256AVX512,
	{cpu.VAES, 128, false}:   encrypt128VAES,
	{cpu.VAES, 128, true}:    decrypt128VAES,
	{cpu.VAES, 256, false}:   encrypt256VAES,
	{cpu.VAES, 256, true}:    decrypt256VAES,
	{cpu.AVX2, 128, false}:   encrypt128AESNI,
	{cpu.AVX2, 128, true}:    decrypt128AESNI,
	{cpu.AVX2, 256, false}:   encrypt256AESNI,
	{cpu.AVX2, 256, true}:    decrypt256AESNI,
}

var blocks = map[cpu.Tier]int{cpu.AVX512: 64, cpu.VAES: 24, cpu.AVX2: 12}

func find(t cpu.Tier, keyBits int, decrypt bool) (loop func(n uint64), blocksEach int) {
	return loops[kind{t, keyBits, decrypt}], blocks[t]
}
