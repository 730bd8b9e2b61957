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
			x.HasAVX512VPCLMULQDQ && x.HasAVX512VAES {
			t = append(t, AVX512)
		}
	}
	return t
}

// MultipliesOnAESPorts reports whether 512-bit carry-less multiplications take execution
// ports from the rounds of AES. They do on AMD's Zen 4; its successors count as it does. On
// Intel's processors, the two have a port each.
func MultipliesOnAESPorts() bool { return amd }

var amd = func() bool {
	_, b, c, d := cpuid(0, 0)
	return b == 0x68747541 && d == 0x69746E65 && c == 0x444D4163 // "AuthenticAMD"
}()

// cpuid executes CPUID. Every processor with AVX2 has leaf 7.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
