package xtsgen

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Tweaks without carry-less multiplications.
//
// On AMD's Zen 4, a 512-bit VPCLMULQDQ takes the execution ports of VAESENC, for as long
// as one VAESENC and more. Shifts, shuffles and logic have ports of their own. A carry
// is therefore multiplied by 0x87 by three shifts: c*0x87 = c ^ c<<1 ^ c<<2 ^ c<<7.
//
// The first two registers have the powers x^0 to x^7. There a 64-bit half overflows by at
// most four bits. One VPERMW looks up what becomes of the overflows of both halves: that
// of the low half goes to the high half as it is, and that of the high half goes to the low
// half, multiplied by 0x87. It works on words, and the indices of the low half's overflow
// have 16 added, to tell the two apart. The table is a register, so that no memory access
// depends on a tweak.
//
// The next three registers of each are multiples by x^8, x^16 and x^24. Their carries are
// the bytes 15, 14 and 13 of the same tweak. These are spread to three words and
// multiplied together, because a byte times 0x87 fits a word. For T' = T ^ L, a carry also
// has a byte of L, whose product is corrected by the constant WideCarry: word m-1 is
// (L[16-m] ^ L[15]) * 0x87. The part of L[15] is in the constant for multiplication by x^8.

// The constants: offsets in XTS.Shifts.
const (
	shCounts   = 0   // of each lane of the first register: its power
	shRests    = 64  // 64 minus its power
	shHigh     = 128 // 16 in the first word of the high half
	shOverflow = 192 // table: v*0x87, and v itself at 16+v
	shSpread   = 256 // shuffle: bytes 15, 14 and 13 to words
	shWord     = 320 // three shuffles: one of these words to the lowest, else zeros
)

// ShiftConstants defines the constants as data of the package, for XTS.Shifts.
func ShiftConstants() *Mem {
	const zeros = 0x8080808080808080 // shuffle control bytes that give zeros
	data := GLOBL("shifts", RODATA|NOPTR)
	// The assembler takes data in rising order only.
	at := 0
	vector := func(lane func(i int) (lo, hi uint64)) {
		for i := range 4 {
			lo, hi := lane(i)
			DATA(at, U64(lo))
			DATA(at+8, U64(hi))
			at += 16
		}
	}
	vector(func(i int) (lo, hi uint64) { return uint64(i), uint64(i) })
	vector(func(i int) (lo, hi uint64) { return uint64(64 - i), uint64(64 - i) })
	vector(func(int) (lo, hi uint64) { return 0, 16 })
	for v := range 16 {
		DATA(shOverflow+2*v, U16(v^v<<1^v<<2^v<<7))
	}
	for v := range 16 {
		DATA(shOverflow+2*(16+v), U16(v))
	}
	at = shSpread
	vector(func(int) (lo, hi uint64) { return zeros&^0xFF00FF00FF | 0x0D000E000F, zeros })
	for m := range uint64(3) {
		vector(func(int) (lo, hi uint64) { return zeros&^0xFFFF | (2*m+1)<<8 | 2*m, zeros })
	}
	return &data
}

// shift returns one of the constants. A load of half of them crosses a cache line, because
// assembly data is aligned to 32 bytes at most. Zen 4 has time for that.
func (k *XTS) shift(off int) Mem { return k.Shifts.Offset(off) }

// spreadByShifts is Spread without carry-less multiplications.
func (k *XTS) spreadByShifts(tweak Mem) []func() {
	const swap = 0x4E
	t, b, d0, d1 := Tweak[2], Tweak[3], Tweak[0], Tweak[1]
	last := k.wide(WideLast)
	n := []func(){
		func() { VBROADCASTI32X4(tweak, t) },
		func() { VPSLLVQ(k.shift(shCounts), t, d0) },
		func() { VPSRLVQ(k.shift(shRests), t, b) },
		func() { VPSHUFD(Imm(swap), b, b) },
		func() { VPORQ(k.shift(shHigh), b, b) },
		func() { VPERMW(k.shift(shOverflow), b, b) },
		func() { VPXORQ(b, d0, t) }, // T*x^s
		func() { VPSLLQ(Imm(4), t, d1) },
		func() { VPSRLQ(Imm(60), t, b) },
		func() { VPSHUFD(Imm(swap), b, b) },
		func() { VPORQ(k.shift(shHigh), b, b) },
		func() { VPERMW(k.shift(shOverflow), b, b) },
		func() { VPTERNLOGQ(Imm(Xor3), last, b, d1) },
		func() { VPXORQ(last, t, d0) },
	}
	return append(n, k.chains()...)
}

// stepsByShifts is Steps without carry-less multiplications.
func (k *XTS) stepsByShifts() (n []func()) {
	for i := range 2 {
		n = append(n, k.multiplyByShifts(Tweak[i], Tweak[i], Tweak[2+i], Tweak[4+i], Tweak[6+i])...)
	}
	return append(n, k.chains()...)
}

// multiplyByShifts sets d to t*x^32, where both are in the form T'. d may be t. It
// overwrites c1, c2 and c3.
func (k *XTS) multiplyByShifts(t, d, c1, c2, c3 VecPhysical) []func() {
	return []func(){
		func() { VPSRLDQ(Imm(12), t, c1) },
		func() { VPSLLDQ(Imm(4), t, d) },
		func() { VPSLLQ(Imm(1), c1, c2) },
		func() { VPSLLQ(Imm(2), c1, c3) },
		func() { VPSLLQ(Imm(7), c1, Tmp) },
		func() { VPTERNLOGQ(Imm(Xor3), c3, c2, c1) },
		func() { VPTERNLOGQ(Imm(Xor3), k.Step(4), Tmp, d) },
		func() { VPXORQ(c1, d, d) },
	}
}

// chains sets the tweak registers 2 to 7 to multiples of the first two by x^8, x^16 and
// x^24.
func (k *XTS) chains() (n []func()) {
	for i := range 2 {
		t, a, b, c := Tweak[i], Tweak[2+i], Tweak[4+i], Tweak[6+i]
		n = append(n,
			func() { VPSHUFB(k.shift(shSpread), t, c) },
			func() { VPSLLQ(Imm(1), c, a) },
			func() { VPSLLQ(Imm(2), c, b) },
			func() { VPSLLQ(Imm(7), c, Tmp) },
			func() { VPTERNLOGQ(Imm(Xor3), b, a, c) },
			func() { VPTERNLOGQ(Imm(Xor3), k.wide(WideCarry), Tmp, c) },
		)
		for m, v := range [][2]VecPhysical{{t, a}, {a, b}, {b, c}} {
			n = append(n,
				func() { VPSHUFB(k.shift(shWord+64*m), c, v[1]) },
				func() { VPSLLDQ(Imm(1), v[0], Tmp) },
				func() { VPTERNLOGQ(Imm(Xor3), k.Step(1), Tmp, v[1]) },
			)
		}
	}
	return n
}
