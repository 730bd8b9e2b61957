// Package cpu decides which instructions the kernels use.
//
// The machine is asked once, at start. A [Tier] names a set of instructions that
// kernels are written for; a kernel package holds one implementation per tier and
// a plain Go one for [Generic]. The environment variable SOFTMKEY_CPU, set to a
// tier's name, lowers the tier that [Best] answers, so that every tier can be run
// on one machine; a name that the machine cannot run is refused at start.
package cpu

import (
	"fmt"
	"os"
)

// Tier is a set of instructions that kernels are written for.
type Tier uint8

const (
	Generic Tier = iota // plain Go
	AVX2                // amd64: AVX2, PCLMULQDQ, AES-NI, SSE4.2
	VAES                // amd64: AVX2 with VAES and VPCLMULQDQ on 256 bits
	AVX512              // amd64: AVX-512 F, BW, VL, DQ with VPCLMULQDQ and VAES
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

// available is filled by the architecture's file, in rising order, after Generic.
var available = append([]Tier{Generic}, detect()...)

var best = choose(os.Getenv("SOFTMKEY_CPU"))

// Available returns every tier that this machine can run, Generic first, the
// fastest last, whatever SOFTMKEY_CPU says. Tests run each of them by name.
func Available() []Tier { return append([]Tier(nil), available...) }

// All returns every tier that kernels of an architecture are written for, in the order
// of Available, whatever this machine can run.
func All(goarch string) []Tier {
	switch goarch {
	case "amd64":
		return []Tier{Generic, AVX2, VAES, AVX512}
	case "arm64":
		return []Tier{Generic, NEON}
	}
	return []Tier{Generic}
}

// Best returns the tier that kernels use: the fastest that the machine can run,
// or the one that SOFTMKEY_CPU names.
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
	// There is no caller to hand an error to at this point, and running another
	// tier than the one asked for would make a test or a measurement lie.
	panic(fmt.Sprintf("softmkey: SOFTMKEY_CPU=%q: this machine can run %v", name, available))
}
