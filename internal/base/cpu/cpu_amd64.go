//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

func detect() []Tier {
	x := cpu.X86
	var t []Tier
	if x.HasAVX2 && x.HasPCLMULQDQ && x.HasAES && x.HasSSE42 && x.HasBMI2 {
		t = append(t, AVX2)
		if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ &&
			x.HasAVX512VPCLMULQDQ && x.HasAVX512VAES {
			t = append(t, AVX512)
		}
	}
	return t
}
