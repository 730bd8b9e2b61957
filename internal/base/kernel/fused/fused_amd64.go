//go:build !purego

package fused

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:generate sh -c "cd ../_asm/fused && go run . -pkg fused -out ../../fused/avx512_amd64.s"

//go:noescape
func encrypt128AVX512(s *Schedule, r *run)

//go:noescape
func decrypt128AVX512(s *Schedule, r *run)

//go:noescape
func encrypt256AVX512(s *Schedule, r *run)

//go:noescape
func decrypt256AVX512(s *Schedule, r *run)

// Available reports whether this machine can execute runs. If not, no other function or
// method of this package may be called.
func Available() bool { return cpu.Best() == cpu.AVX512 }

func encrypt(s *Schedule, r *run) {
	if s.Rounds == 10 {
		encrypt128AVX512(s, r)
	} else {
		encrypt256AVX512(s, r)
	}
}

func decrypt(s *Schedule, r *run) {
	if s.Rounds == 10 {
		decrypt128AVX512(s, r)
	} else {
		decrypt256AVX512(s, r)
	}
}
