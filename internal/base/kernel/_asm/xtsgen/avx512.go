package xtsgen

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Registers of the AVX-512 kernels.
var (
	State    = [8]VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7}
	Tweak    = [8]VecPhysical{Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15}
	Tmp      = Z29
	ChainKey = Z30
	Chain    = Z31
	AllZ     = []VecPhysical{Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31}

	Sched   = RAX // *schedule
	Slot    = RBX // slot of the current unit in the rings
	Scratch = R9  // aligned to 64 bytes
	Pending = R10 // number of units whose last block is not encrypted yet
	Tmp1    = R14
	Tmp2    = R15
)

// Scratch memory of the AVX-512 kernels: offsets from Scratch. A ring has eight slots of
// 16 bytes, indexed by the unit number modulo 8: two groups of four.
const (
	ScNumbers  = 0   // next four tweak numbers to encrypt
	ScTweaks   = 64  // ring of encrypted tweak numbers
	ScFix      = 192 // ring of blocks that are encrypted last
	ScFixTweak = 320 // ring of their T'
	ScFixOut   = 448 // ring of their addresses
	ScOwn      = 576 // private to the kernel from here on

	RingMask  = 127
	RingGroup = 64
)

// At returns a memory operand in a ring.
func At(ring int, slot Register) Mem {
	return Mem{Base: Scratch, Index: slot, Scale: 1, Disp: ring}
}

// XTS is the common part of the generators of AVX-512 kernels. The generator of aesxts
// explains the tweaks (avx512.go).
type XTS struct {
	Rounds  int
	Decrypt bool

	// Poly returns 0x87. Power(j) returns the powers of x with which the lanes of
	// register j start. Both must be in memory that does not cross cache lines.
	Poly  func() Mem
	Power func(j int) Mem
}

// direction returns 1 for decryption, else 0.
func (k *XTS) direction() int {
	if k.Decrypt {
		return 1
	}
	return 0
}

// RoundKey returns the round key r in the schedule.
func (k *XTS) RoundKey(r int) Mem { return Ptr(Sched, OffEnc1+k.direction()*OffDec1+16*r) }

// First returns c.
func (k *XTS) First() Mem { return k.wide(WideFirst) }

// Step returns the constant for multiplication by x^8m.
func (k *XTS) Step(m int) Mem { return k.wide(WideStep + 64*(m-1)) }

func (k *XTS) wide(off int) Mem { return Ptr(Sched, OffWide+k.direction()*WideSize+off) }

// TweakChain encrypts the four tweak numbers of ScNumbers for the next group.
func (k *XTS) TweakChain() []func() {
	return append([]func(){func() { VMOVDQA64(Ptr(Scratch, ScNumbers), Chain) }},
		k.TweakChainOf(func() { MOVQ(Slot, Tmp2); XORQ(Imm(RingGroup), Tmp2) })...)
}

// TweakChainOf encrypts Chain with key2 into the ring of tweaks, at Tmp2 if slot sets it.
func (k *XTS) TweakChainOf(slot func()) (s []func()) {
	for i := 0; i <= k.Rounds; i++ {
		s = append(s,
			func() { VBROADCASTI32X4(Ptr(Sched, OffEnc2+16*i), ChainKey) },
			func() {
				switch i {
				case 0:
					VPXORQ(ChainKey, Chain, Chain)
				case k.Rounds:
					VAESENCLAST(ChainKey, Chain, Chain)
				default:
					VAESENC(ChainKey, Chain, Chain)
				}
			})
	}
	return append(s, func() {
		if slot == nil {
			VMOVDQA64(Chain, Ptr(Scratch, ScTweaks))
		} else {
			slot()
			VMOVDQA64(Chain, At(ScTweaks, Tmp2))
		}
	})
}

// Spread sets the eight tweak registers to T', T'*x, ... T'*x^31 for the T in memory.
func (k *XTS) Spread(tweak Mem) (n []func()) {
	t, b, c := Tweak[2], Tweak[3], Tmp
	n = append(n, func() { VBROADCASTI32X4(tweak, t) })
	for j := range 2 {
		d, power := Tweak[j], k.Power(j)
		n = append(n,
			func() { VPCLMULQDQ(Imm(0x01), power, t, b) },    // hi * x^s
			func() { VPCLMULQDQ(Imm(0x00), power, t, d) },    // lo * x^s
			func() { VPCLMULQDQ(Imm(0x01), k.Poly(), b, c) }, // overflow * 0x87
			func() { VPSLLDQ(Imm(8), b, b) },                 // b * x^64
			func() { VPTERNLOGQ(Imm(Xor3), k.wide(WideLast), c, d) },
			func() { VPXORQ(b, d, d) },
		)
	}
	for j := range 2 {
		n = append(n, k.Multiply(Tweak[j], Tweak[2+j], Tmp, 1)...)
	}
	for i := 4; i < 8; i++ {
		n = append(n, k.Multiply(Tweak[i%2], Tweak[i], Tmp, i/2)...)
	}
	return n
}

// Steps multiplies all tweak registers by x^32.
func (k *XTS) Steps() (n []func()) {
	for _, t := range Tweak {
		n = append(n, k.Multiply(t, t, Tmp, 4)...)
	}
	return n
}

// Multiply sets d to t*x^8m, where both are in the form T'. d may be t.
func (k *XTS) Multiply(t, d, tmp VecPhysical, m int) []func() {
	return []func(){
		func() { VPSRLDQ(Imm(uint64(16-m)), t, tmp) },
		func() { VPCLMULQDQ(Imm(0x00), k.Poly(), tmp, tmp) },
		func() { VPSLLDQ(Imm(uint64(m)), t, d) },
		func() { VPTERNLOGQ(Imm(Xor3), k.Step(m), tmp, d) },
	}
}

// StealTweaks prepares ciphertext stealing for a unit that ends with a whole stripe: it
// stores the tweak of the block that is encrypted last in the ring.
func (k *XTS) StealTweaks() {
	Run(k.Multiply(Tweak[0], Tmp, ChainKey, 4))
	VMOVDQA64(Tmp, State[0])
	if !k.Decrypt {
		VMOVDQA(X0, At(ScFixTweak, Slot))
		return
	}
	Comment("Decryption uses the tweaks of the last block and of the remainder in reverse order.")
	VEXTRACTI32X4(Imm(3), Tweak[7], At(ScFixTweak, Slot))
	VINSERTI32X4(Imm(3), X0, Tweak[7], Tweak[7])
}

// PreviousGroup sets Tmp2 to the slot of the previous group.
func PreviousGroup() {
	MOVQ(Slot, Tmp2)
	ANDQ(Imm(RingGroup), Tmp2)
	XORQ(Imm(RingGroup), Tmp2)
}

// FixStore stores the four blocks of Chain, the last blocks of a group.
func FixStore() {
	for i := range 4 {
		FixStoreLane(i)
	}
	SUBQ(Imm(4), Pending)
}

// FixStoreLane stores one of the blocks of Chain.
func FixStoreLane(i int) {
	MOVQ(At(ScFixOut+16*i, Tmp2), Tmp1)
	VEXTRACTI32X4(Imm(uint64(i)), Chain, X0)
	VMOVDQU(X0, Ptr(Tmp1, 0))
}

// Oldest sets Tmp2 to the slot of the oldest unit whose last block is not encrypted yet,
// the first of its group.
func Oldest() {
	MOVQ(Pending, Tmp2)
	SHLQ(Imm(4), Tmp2)
	NEGQ(Tmp2)
	ADDQ(Slot, Tmp2)
	ANDQ(U8(RingMask), Tmp2)
}
