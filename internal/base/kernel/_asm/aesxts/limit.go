package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"

	. "github.com/softmkey/softmkey/internal/base/kernel/_asm/xtsgen"
)

// limit generates the loops of package roundlimit: only the rounds of a block, without
// loads, stores, tweaks and whitening. The rounds of a register wait for each other, four
// cycles on AMD's processors, which begin two rounds per cycle. Eight registers are then not
// quite enough to keep both ports busy.
func limit() {
	for _, rounds := range []int{10, 14} {
		for _, decrypt := range []bool{false, true} {
			for _, tier := range []string{"AVX512", "VAES", "AESNI"} {
				limitLoop(rounds, decrypt, tier)
			}
		}
	}
}

func limitLoop(rounds int, decrypt bool, tier string) {
	state := []VecPhysical{X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11}
	key := Op(X15)
	switch tier {
	case "AVX512":
		state, key = AllZ[:16], Z31
	case "VAES":
		for i, x := range state {
			state[i] = x.AsY().(VecPhysical)
		}
		key = Y15
	}
	TEXT(KernelName(rounds, decrypt, tier), NOSPLIT, "func(n uint64)")
	n := RAX
	Load(Param("n"), n)
	Label("loop")
	for r := 1; r <= rounds; r++ {
		for _, s := range state {
			if r < rounds {
				Round(decrypt, key, s)
			} else {
				LastRound(decrypt, key, s)
			}
		}
	}
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
