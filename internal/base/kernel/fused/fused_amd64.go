//go:build !purego

package fused

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:generate sh -c "cd ../_asm/fused && go run . -pkg fused -out ../../fused/avx512_amd64.s"

// The kernels. Their names say what they do in which order, and the size of the AES keys:
// seal is generating fields and encrypting them with the blocks, open is decrypting and
// checking such units, sign is generating fields that are not encrypted.

//go:noescape
func seal128AVX512(s *Schedule, r *run)

//go:noescape
func checkSeal128AVX512(s *Schedule, r *run)

//go:noescape
func open128AVX512(s *Schedule, r *run)

//go:noescape
func openSign128AVX512(s *Schedule, r *run)

//go:noescape
func checkEncrypt128AVX512(s *Schedule, r *run)

//go:noescape
func encryptSign128AVX512(s *Schedule, r *run)

//go:noescape
func checkDecrypt128AVX512(s *Schedule, r *run)

//go:noescape
func decryptSign128AVX512(s *Schedule, r *run)

//go:noescape
func seal256AVX512(s *Schedule, r *run)

//go:noescape
func checkSeal256AVX512(s *Schedule, r *run)

//go:noescape
func open256AVX512(s *Schedule, r *run)

//go:noescape
func openSign256AVX512(s *Schedule, r *run)

//go:noescape
func checkEncrypt256AVX512(s *Schedule, r *run)

//go:noescape
func encryptSign256AVX512(s *Schedule, r *run)

//go:noescape
func checkDecrypt256AVX512(s *Schedule, r *run)

//go:noescape
func decryptSign256AVX512(s *Schedule, r *run)

// The same without carry-less multiplications for tweaks.

//go:noescape
func seal128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkSeal128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func open128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func openSign128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkEncrypt128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func encryptSign128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkDecrypt128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func decryptSign128AVX512Shifts(s *Schedule, r *run)

//go:noescape
func seal256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkSeal256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func open256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func openSign256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkEncrypt256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func encryptSign256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func checkDecrypt256AVX512Shifts(s *Schedule, r *run)

//go:noescape
func decryptSign256AVX512Shifts(s *Schedule, r *run)

// Available reports whether this machine can execute runs. If not, no other function or
// method of this package may be called.
func Available() bool { return cpu.Best() == cpu.AVX512 }

// execute calls the kernel. The calls are direct, because a call through a variable would
// move the run to the heap.
func execute(s *Schedule, p *Pass, r *run) {
	if s.Shifts {
		executeShifts(s, p, r)
		return
	}
	short := s.Rounds == 10 // AES-128
	switch {
	case short && p.Sealed && !p.Decrypt && !p.Check:
		seal128AVX512(s, r)
	case p.Sealed && !p.Decrypt && !p.Check:
		seal256AVX512(s, r)
	case short && p.Sealed && !p.Decrypt:
		checkSeal128AVX512(s, r)
	case p.Sealed && !p.Decrypt:
		checkSeal256AVX512(s, r)
	case short && p.Sealed && !p.Generate:
		open128AVX512(s, r)
	case p.Sealed && !p.Generate:
		open256AVX512(s, r)
	case short && p.Sealed:
		openSign128AVX512(s, r)
	case p.Sealed:
		openSign256AVX512(s, r)
	case short && !p.Decrypt && p.Check:
		checkEncrypt128AVX512(s, r)
	case !p.Decrypt && p.Check:
		checkEncrypt256AVX512(s, r)
	case short && !p.Decrypt:
		encryptSign128AVX512(s, r)
	case !p.Decrypt:
		encryptSign256AVX512(s, r)
	case short && p.Check:
		checkDecrypt128AVX512(s, r)
	case p.Check:
		checkDecrypt256AVX512(s, r)
	case short:
		decryptSign128AVX512(s, r)
	default:
		decryptSign256AVX512(s, r)
	}
}

// executeShifts is execute for the second set.
func executeShifts(s *Schedule, p *Pass, r *run) {
	short := s.Rounds == 10 // AES-128
	switch {
	case short && p.Sealed && !p.Decrypt && !p.Check:
		seal128AVX512Shifts(s, r)
	case p.Sealed && !p.Decrypt && !p.Check:
		seal256AVX512Shifts(s, r)
	case short && p.Sealed && !p.Decrypt:
		checkSeal128AVX512Shifts(s, r)
	case p.Sealed && !p.Decrypt:
		checkSeal256AVX512Shifts(s, r)
	case short && p.Sealed && !p.Generate:
		open128AVX512Shifts(s, r)
	case p.Sealed && !p.Generate:
		open256AVX512Shifts(s, r)
	case short && p.Sealed:
		openSign128AVX512Shifts(s, r)
	case p.Sealed:
		openSign256AVX512Shifts(s, r)
	case short && !p.Decrypt && p.Check:
		checkEncrypt128AVX512Shifts(s, r)
	case !p.Decrypt && p.Check:
		checkEncrypt256AVX512Shifts(s, r)
	case short && !p.Decrypt:
		encryptSign128AVX512Shifts(s, r)
	case !p.Decrypt:
		encryptSign256AVX512Shifts(s, r)
	case short && p.Check:
		checkDecrypt128AVX512Shifts(s, r)
	case p.Check:
		checkDecrypt256AVX512Shifts(s, r)
	case short:
		decryptSign128AVX512Shifts(s, r)
	default:
		decryptSign256AVX512Shifts(s, r)
	}
}
