//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

func detect() []Tier {
	x := cpu.X86
	var t []Tier
	if x.HasAVX2 && x.HasPCLMULQDQ && x.HasAES && x.HasSSE42 && x.HasBMI2 {
		t = append(t, AVX2)
		// x/sys/cpu reports VAES and VPCLMULQDQ only together with AVX-512.
		const vaes, vpclmulqdq = 1 << 9, 1 << 10
		if _, _, ecx, _ := cpuid(7, 0); ecx&vaes != 0 && ecx&vpclmulqdq != 0 {
			t = append(t, VAES)
		}
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
			x.HasAVX512VPCLMULQDQ && x.HasAVX512VAES && x.HasAVX512GFNI && x.HasAVX512VBMI {
			t = append(t, AVX512)
		}
	}
	return t
}

// cpuid executes CPUID. Every processor with AVX2 has leaf 7.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
