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

// MultipliesOnAESPorts reports whether 512-bit carry-less multiplications take execution
// ports from the rounds of AES. They do on AMD's Zen 4; its successors count as it does. On
// Intel's processors, the two have a port each.
func MultipliesOnAESPorts() bool { return amd }

// MultipliesBesideAES reports whether long chains of AES's rounds hide carry-less
// multiplications that take their ports. They do on AMD's Zen 5, with which family 26 begins:
// there, computing the tweaks of AES-XTS without multiplications costs 1 to 3 % with AES-256,
// and with AES-128 in data units of 4096 bytes.
func MultipliesBesideAES() bool { return amd && family >= 26 }

// MultipliesSlowly reports whether a 512-bit carry-less multiplication takes as long as four
// affine maps (GF2P8AFFINEQB) of 512 bits. It does on AMD's Zen 5, with which family 26
// begins; its successors count as it does. Zen 4 executes one map per cycle and Intel's
// processors one multiplication, so that the difference is smaller there.
func MultipliesSlowly() bool { return amd && family >= 26 }

// family is the sum of two fields of leaf 1.
var family = func() uint32 {
	a, _, _, _ := cpuid(1, 0)
	return a>>8&0xF + a>>20&0xFF
}()

var amd = func() bool {
	_, b, c, d := cpuid(0, 0)
	return b == 0x68747541 && d == 0x69746E65 && c == 0x444D4163 // "AuthenticAMD"
}()

// cpuid executes CPUID. Every processor with AVX2 has leaf 7.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)
