// Package cpu selects the instruction set that the kernels use.
//
// The processor is examined once, at program start. A [Tier] names an instruction set for
// which kernels are written. A kernel package has one implementation for each tier, and
// one in plain Go for [Generic]. If the environment variable SOFTMKEY_CPU names a tier,
// [Best] returns that tier, so that one machine can run every tier below its own. A
// program with a name that the machine cannot run panics at start.
package cpu

import (
	"fmt"
	"os"
)

// Tier is an instruction set for which kernels are written.
type Tier uint8

const (
	Generic Tier = iota // plain Go
	AVX2                // amd64: AVX2, PCLMULQDQ, AES-NI, SSE4.2
	VAES                // amd64: AVX2 with VAES and VPCLMULQDQ on 256 bits
	AVX512              // amd64: AVX-512 F, BW, VL, DQ, VBMI with VPCLMULQDQ, VAES and GFNI
	NEON                // arm64: ASIMD with PMULL, AES and CRC32
)

var names = [...]string{Generic: "generic", AVX2: "avx2", VAES: "vaes", AVX512: "avx512", NEON: "neon"}

// String returns the name by which SOFTMKEY_CPU selects the tier.
func (t Tier) String() string {
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// available holds Generic and the tiers that detect found, in rising order.
var available = append([]Tier{Generic}, detect()...)

var best = choose(os.Getenv("SOFTMKEY_CPU"))

// Available returns the tiers that this machine can run, from Generic to the fastest.
// SOFTMKEY_CPU does not affect it. Tests run each of the tiers by name.
func Available() []Tier { return append([]Tier(nil), available...) }

// All returns the tiers for which an architecture has kernels, in the order of Available.
func All(goarch string) []Tier {
	switch goarch {
	case "amd64":
		return []Tier{Generic, AVX2, VAES, AVX512}
	case "arm64":
		return []Tier{Generic, NEON}
	}
	return []Tier{Generic}
}

// Best returns the tier that kernels use: the one that SOFTMKEY_CPU names, otherwise the
// fastest that the machine can run.
func Best() Tier { return best }

func choose(name string) Tier {
	if name == "" {
		return available[len(available)-1]
	}
	for _, t := range available {
		if t.String() == name {
			return t
		}
	}
	// No caller could receive an error here, and running a tier other than the
	// requested one would make a test or measurement wrong.
	panic(fmt.Sprintf("softmkey: SOFTMKEY_CPU=%q: this machine can run %v", name, available))
}
