//go:build !purego

package fused

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:generate sh -c "cd ../_asm/fused && go run . -pkg fused -out ../../fused/avx512_amd64.s"

// set has the kernels for one size of AES keys. seal is generating fields and encrypting them
// with the blocks, open is decrypting and checking such units, sign is generating fields that
// are not encrypted.
type set struct {
	seal, checkSeal, open, openSign, checkEncrypt, encryptSign, checkDecrypt, decryptSign kernel
}

type kernel func(s *Schedule, r *run)

// Sets of kernels for AES-128 and AES-256. Those of shifts compute tweaks without carry-less
// multiplications.
var (
	products = [2]set{
		{seal128AVX512, checkSeal128AVX512, open128AVX512, openSign128AVX512,
			checkEncrypt128AVX512, encryptSign128AVX512, checkDecrypt128AVX512, decryptSign128AVX512},
		{seal256AVX512, checkSeal256AVX512, open256AVX512, openSign256AVX512,
			checkEncrypt256AVX512, encryptSign256AVX512, checkDecrypt256AVX512, decryptSign256AVX512},
	}
	shifts = [2]set{
		{seal128AVX512Shifts, checkSeal128AVX512Shifts, open128AVX512Shifts, openSign128AVX512Shifts,
			checkEncrypt128AVX512Shifts, encryptSign128AVX512Shifts, checkDecrypt128AVX512Shifts, decryptSign128AVX512Shifts},
		{seal256AVX512Shifts, checkSeal256AVX512Shifts, open256AVX512Shifts, openSign256AVX512Shifts,
			checkEncrypt256AVX512Shifts, encryptSign256AVX512Shifts, checkDecrypt256AVX512Shifts, decryptSign256AVX512Shifts},
	}
)

func seal128AVX512(s *Schedule, r *run)
func checkSeal128AVX512(s *Schedule, r *run)
func open128AVX512(s *Schedule, r *run)
func openSign128AVX512(s *Schedule, r *run)
func checkEncrypt128AVX512(s *Schedule, r *run)
func encryptSign128AVX512(s *Schedule, r *run)
func checkDecrypt128AVX512(s *Schedule, r *run)
func decryptSign128AVX512(s *Schedule, r *run)

func seal256AVX512(s *Schedule, r *run)
func checkSeal256AVX512(s *Schedule, r *run)
func open256AVX512(s *Schedule, r *run)
func openSign256AVX512(s *Schedule, r *run)
func checkEncrypt256AVX512(s *Schedule, r *run)
func encryptSign256AVX512(s *Schedule, r *run)
func checkDecrypt256AVX512(s *Schedule, r *run)
func decryptSign256AVX512(s *Schedule, r *run)

func seal128AVX512Shifts(s *Schedule, r *run)
func checkSeal128AVX512Shifts(s *Schedule, r *run)
func open128AVX512Shifts(s *Schedule, r *run)
func openSign128AVX512Shifts(s *Schedule, r *run)
func checkEncrypt128AVX512Shifts(s *Schedule, r *run)
func encryptSign128AVX512Shifts(s *Schedule, r *run)
func checkDecrypt128AVX512Shifts(s *Schedule, r *run)
func decryptSign128AVX512Shifts(s *Schedule, r *run)

func seal256AVX512Shifts(s *Schedule, r *run)
func checkSeal256AVX512Shifts(s *Schedule, r *run)
func open256AVX512Shifts(s *Schedule, r *run)
func openSign256AVX512Shifts(s *Schedule, r *run)
func checkEncrypt256AVX512Shifts(s *Schedule, r *run)
func encryptSign256AVX512Shifts(s *Schedule, r *run)
func checkDecrypt256AVX512Shifts(s *Schedule, r *run)
func decryptSign256AVX512Shifts(s *Schedule, r *run)

// Available reports whether this machine can execute runs. If not, no other function or
// method of this package may be called.
func Available() bool { return cpu.Best() == cpu.AVX512 }

// execute calls the kernel of a pass.
func execute(s *Schedule, p *Pass, r *run) {
	sets, size := &products, 0
	if s.Shifts {
		sets = &shifts
	}
	if s.Rounds == 14 {
		size = 1
	}
	sets[size].of(p)(s, r)
}

func (k *set) of(p *Pass) kernel {
	switch {
	case p.Sealed && p.Decrypt && p.Generate:
		return k.openSign
	case p.Sealed && p.Decrypt:
		return k.open
	case p.Sealed && p.Check:
		return k.checkSeal
	case p.Sealed:
		return k.seal
	case p.Decrypt && p.Check:
		return k.checkDecrypt
	case p.Decrypt:
		return k.decryptSign
	case p.Check:
		return k.checkEncrypt
	}
	return k.encryptSign
}
