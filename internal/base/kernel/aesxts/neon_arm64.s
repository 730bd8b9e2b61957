//go:build !purego

#include "textflag.h"

// The NEON kernel, by hand: avo does not know arm64.
//
// Eight blocks are in flight, a stripe. AESE begins with the exclusive or of a round
// key, so that a block is: tweak, AESE and AESMC for all round keys but two, AESE, the
// last round key, tweak. The keys stand in V16 to V30; AES-128 has the last eleven of
// them and leaves out the first four rounds. Tweaks are doubled in the integer unit,
// which has nothing else to do. The tweak numbers of eight units are encrypted
// together.

// Offsets in Go's type schedule.
#define ENC1 0
#define DEC1 240
#define ENC2 480
#define ROUNDS 720

#define SCHED R0
#define SRC R1       // the current unit
#define DST R2
#define SRCSTRIDE R3
#define DSTSTRIDE R4
#define BLOCKS R5    // whole blocks in a unit
#define STEAL R6     // bytes after them
#define COUNT R7     // units left
#define LO R8        // the next block's tweak
#define HI R9
#define TMP R10
#define IN R11       // position in the current unit
#define OUT R12
#define LEFT R13     // whole blocks left in it
#define TWEAK R14    // the next unit's encrypted tweak number
#define NUMLO R15    // the next tweak number
#define NUMHI R19
#define LONG R20     // 0 for AES-128
#define SCRATCH R21  // eight encrypted tweak numbers
#define SHIFTS R22
#define END R23      // of SCRATCH

// Controls of VTBL and VTBX for whole-byte shifts: at s, to the left by 16-s; at 32-s,
// to the right by 16-s. What is out of range gives zero, or leaves the byte alone.
DATA shifts<>+0(SB)/8, $0xffffffffffffffff
DATA shifts<>+8(SB)/8, $0xffffffffffffffff
DATA shifts<>+16(SB)/8, $0x0706050403020100
DATA shifts<>+24(SB)/8, $0x0f0e0d0c0b0a0908
DATA shifts<>+32(SB)/8, $0xffffffffffffffff
DATA shifts<>+40(SB)/8, $0xffffffffffffffff
GLOBL shifts<>(SB), RODATA|NOPTR, $48

// NEXT puts the next tweak into V and doubles it: a shift of the 128-bit number, and
// 0x87 for the bit that leaves.
#define NEXT(V) \
	VMOV LO, V.D[0] \
	VMOV HI, V.D[1] \
	ASR  $63, HI, TMP \
	EXTR $63, LO, HI, HI \
	AND  $0x87, TMP, TMP \
	EOR  LO<<1, TMP, LO

// NUMBER puts the next tweak number into V and adds 1 to it.
#define NUMBER(V) \
	VMOV NUMLO, V.D[0] \
	VMOV NUMHI, V.D[1] \
	ADDS $1, NUMLO, NUMLO \
	ADC  ZR, NUMHI, NUMHI

#define ENC(K, S) \
	AESE  K.B16, S.B16 \
	AESMC S.B16, S.B16

#define DEC(K, S) \
	AESD   K.B16, S.B16 \
	AESIMC S.B16, S.B16

#define ENCLAST(K, S) AESE K.B16, S.B16
#define DECLAST(K, S) AESD K.B16, S.B16
#define XOR(K, S) VEOR K.B16, S.B16, S.B16

#define ALL(OP, K) \
	OP(K, V0) \
	OP(K, V1) \
	OP(K, V2) \
	OP(K, V3) \
	OP(K, V4) \
	OP(K, V5) \
	OP(K, V6) \
	OP(K, V7)

#define ONE(OP, K) OP(K, V0)

// XORTWEAKS is the exclusive or of eight blocks and their tweaks.
#define XORTWEAKS \
	XOR(V8, V0) \
	XOR(V9, V1) \
	XOR(V10, V2) \
	XOR(V11, V3) \
	XOR(V12, V4) \
	XOR(V13, V5) \
	XOR(V14, V6) \
	XOR(V15, V7)

// ROUNDS256 are the rounds that AES-128 does not have.
#define ROUNDS256(DO, OP) \
	DO(OP, V16) \
	DO(OP, V17) \
	DO(OP, V18) \
	DO(OP, V19)

#define ROUNDS128(DO, OP, LAST) \
	DO(OP, V20) \
	DO(OP, V21) \
	DO(OP, V22) \
	DO(OP, V23) \
	DO(OP, V24) \
	DO(OP, V25) \
	DO(OP, V26) \
	DO(OP, V27) \
	DO(OP, V28) \
	DO(LAST, V29) \
	DO(XOR, V30)

// START loads the arguments and the round keys that are at the offset KEYS.
#define START(KEYS) \
	MOVD s+0(FP), SCHED \
	MOVD r+8(FP), TMP \
	LDP  0(TMP), (DST, SRC) \
	LDP  16(TMP), (DSTSTRIDE, SRCSTRIDE) \
	LDP  32(TMP), (BLOCKS, COUNT) \
	LDP  48(TMP), (NUMLO, NUMHI) \
	AND  $15, BLOCKS, STEAL \
	LSR  $4, BLOCKS, BLOCKS \
	MOVD $tweaks-128(SP), SCRATCH \
	ADD  $128, SCRATCH, END \
	MOVD $shifts<>(SB), SHIFTS \
	MOVD ROUNDS(SCHED), LONG \
	SUB  $10, LONG, LONG \
	ADD  $KEYS, SCHED, TMP \
	CBZ  LONG, keys128 \
	VLD1.P 64(TMP), [V16.B16, V17.B16, V18.B16, V19.B16] \
keys128: \
	VLD1.P 64(TMP), [V20.B16, V21.B16, V22.B16, V23.B16] \
	VLD1.P 64(TMP), [V24.B16, V25.B16, V26.B16, V27.B16] \
	VLD1   (TMP), [V28.B16, V29.B16, V30.B16]

// TWEAKS encrypts the next eight tweak numbers into SCRATCH.
#define TWEAKS \
	NUMBER(V0) \
	NUMBER(V1) \
	NUMBER(V2) \
	NUMBER(V3) \
	NUMBER(V4) \
	NUMBER(V5) \
	NUMBER(V6) \
	NUMBER(V7) \
	ADD  $ENC2, SCHED, IN \
	MOVD ROUNDS(SCHED), LEFT \
	SUB  $1, LEFT, LEFT \
tweakRound: \
	VLD1.P 16(IN), [V31.B16] \
	ALL(ENC, V31) \
	SUB    $1, LEFT, LEFT \
	CBNZ   LEFT, tweakRound \
	VLD1.P 16(IN), [V31.B16] \
	ALL(ENCLAST, V31) \
	VLD1   (IN), [V31.B16] \
	ALL(XOR, V31) \
	MOVD   SCRATCH, TWEAK \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(TWEAK) \
	VST1   [V4.B16, V5.B16, V6.B16, V7.B16], (TWEAK) \
	MOVD   SCRATCH, TWEAK

#define NEXT8 \
	NEXT(V8) \
	NEXT(V9) \
	NEXT(V10) \
	NEXT(V11) \
	NEXT(V12) \
	NEXT(V13) \
	NEXT(V14) \
	NEXT(V15)

#define LOAD8 \
	VLD1.P 64(IN), [V0.B16, V1.B16, V2.B16, V3.B16] \
	VLD1.P 64(IN), [V4.B16, V5.B16, V6.B16, V7.B16]

#define STORE8 \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(OUT) \
	VST1.P [V4.B16, V5.B16, V6.B16, V7.B16], 64(OUT)

// THEFT puts the head of the last whole block, which is before OUT, at the unit's end,
// and into V0 the block with the input's rest in the head's place. Sixteen bytes that
// end with the unit are read and written in one, as there are always that many; what
// is wrong before the rest is written over last.
#define THEFT \
	SUB  $16, OUT, TMP \
	VLD1 (TMP), [V0.B16] \
	SUB  $16, IN, TMP \
	ADD  STEAL, TMP \
	VLD1 (TMP), [V1.B16] \
	ADD  STEAL, SHIFTS, TMP \
	VLD1 (TMP), [V2.B16] \
	VTBL V2.B16, [V0.B16], V3.B16 \
	SUB  $16, OUT, TMP \
	ADD  STEAL, TMP \
	VST1 [V3.B16], (TMP) \
	SUB  STEAL, SHIFTS, TMP \
	ADD  $32, TMP \
	VLD1 (TMP), [V2.B16] \
	VTBX V2.B16, [V1.B16], V0.B16

// WIPE leaves no key, tweak or block behind.
#define WIPE \
	VEOR V0.B16, V0.B16, V0.B16 \
	VEOR V1.B16, V1.B16, V1.B16 \
	VEOR V2.B16, V2.B16, V2.B16 \
	VEOR V3.B16, V3.B16, V3.B16 \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(SCRATCH) \
	VST1   [V0.B16, V1.B16, V2.B16, V3.B16], (SCRATCH) \
	ALL(WIPE1, V0) \
	WIPE1(V0, V8) \
	WIPE1(V0, V9) \
	WIPE1(V0, V10) \
	WIPE1(V0, V11) \
	WIPE1(V0, V12) \
	WIPE1(V0, V13) \
	WIPE1(V0, V14) \
	WIPE1(V0, V15) \
	WIPE1(V0, V16) \
	WIPE1(V0, V17) \
	WIPE1(V0, V18) \
	WIPE1(V0, V19) \
	WIPE1(V0, V20) \
	WIPE1(V0, V21) \
	WIPE1(V0, V22) \
	WIPE1(V0, V23) \
	WIPE1(V0, V24) \
	WIPE1(V0, V25) \
	WIPE1(V0, V26) \
	WIPE1(V0, V27) \
	WIPE1(V0, V28) \
	WIPE1(V0, V29) \
	WIPE1(V0, V30) \
	WIPE1(V0, V31)

#define WIPE1(K, S) VEOR S.B16, S.B16, S.B16

// func encryptNEON(s *schedule, r *run)
TEXT ·encryptNEON(SB), 0, $128-16
	START(ENC1)

group:
	TWEAKS

unit:
	MOVD  SRC, IN
	MOVD  DST, OUT
	MOVD  BLOCKS, LEFT
	LDP.P 16(TWEAK), (LO, HI)

stripe:
	CMP $8, LEFT
	BLT single
	NEXT8
	LOAD8
	XORTWEAKS
	CBZ LONG, stripe128
	ROUNDS256(ALL, ENC)

stripe128:
	ROUNDS128(ALL, ENC, ENCLAST)
	XORTWEAKS
	STORE8
	SUB $8, LEFT, LEFT
	B   stripe

single:
	CBZ    LEFT, whole
	NEXT(V8)
	VLD1.P 16(IN), [V0.B16]
	XOR(V8, V0)
	CBZ    LONG, single128
	ROUNDS256(ONE, ENC)

single128:
	ROUNDS128(ONE, ENC, ENCLAST)
	XOR(V8, V0)
	VST1.P [V0.B16], 16(OUT)
	SUB    $1, LEFT, LEFT
	B      single

whole:
	CBZ  STEAL, next
	NEXT(V31)
	THEFT
	XOR(V31, V0)
	CBZ  LONG, theft128
	ROUNDS256(ONE, ENC)

theft128:
	ROUNDS128(ONE, ENC, ENCLAST)
	XOR(V31, V0)
	SUB  $16, OUT, TMP
	VST1 [V0.B16], (TMP)

next:
	ADD  SRCSTRIDE, SRC, SRC
	ADD  DSTSTRIDE, DST, DST
	SUB  $1, COUNT, COUNT
	CBZ  COUNT, done
	CMP  END, TWEAK
	BNE  unit
	B    group

done:
	WIPE
	RET

// func decryptNEON(s *schedule, r *run)
TEXT ·decryptNEON(SB), 0, $128-16
	START(DEC1)

group:
	TWEAKS

unit:
	MOVD  SRC, IN
	MOVD  DST, OUT
	MOVD  BLOCKS, LEFT
	LDP.P 16(TWEAK), (LO, HI)

stripe:
	CMP $8, LEFT
	BLT single
	NEXT8
	BNE stripeTweaked // unless these are the last eight; NEXT leaves the flags alone
	CBZ STEAL, stripeTweaked

	// The last block and the stolen rest swap their tweaks.
	VMOV V15.B16, V31.B16
	NEXT(V15)

stripeTweaked:
	LOAD8
	XORTWEAKS
	CBZ LONG, stripe128
	ROUNDS256(ALL, DEC)

stripe128:
	ROUNDS128(ALL, DEC, DECLAST)
	XORTWEAKS
	STORE8
	SUB $8, LEFT, LEFT
	B   stripe

single:
	CBZ  LEFT, whole
	NEXT(V8)
	CMP  $1, LEFT
	BNE  singleTweaked
	CBZ  STEAL, singleTweaked
	VMOV V8.B16, V31.B16
	NEXT(V8)

singleTweaked:
	VLD1.P 16(IN), [V0.B16]
	XOR(V8, V0)
	CBZ    LONG, single128
	ROUNDS256(ONE, DEC)

single128:
	ROUNDS128(ONE, DEC, DECLAST)
	XOR(V8, V0)
	VST1.P [V0.B16], 16(OUT)
	SUB    $1, LEFT, LEFT
	B      single

whole:
	CBZ  STEAL, next
	THEFT
	XOR(V31, V0)
	CBZ  LONG, theft128
	ROUNDS256(ONE, DEC)

theft128:
	ROUNDS128(ONE, DEC, DECLAST)
	XOR(V31, V0)
	SUB  $16, OUT, TMP
	VST1 [V0.B16], (TMP)

next:
	ADD  SRCSTRIDE, SRC, SRC
	ADD  DSTSTRIDE, DST, DST
	SUB  $1, COUNT, COUNT
	CBZ  COUNT, done
	CMP  END, TWEAK
	BNE  unit
	B    group

done:
	WIPE
	RET

// func subWordNEON(w uint32) uint32
TEXT ·subWordNEON(SB), NOSPLIT, $0-12
	MOVWU w+0(FP), R0

	// With four equal columns, AESE's ShiftRows changes nothing.
	VDUP  R0, V0.S4
	VEOR  V1.B16, V1.B16, V1.B16
	AESE  V1.B16, V0.B16
	VMOV  V0.S[0], R0
	MOVW  R0, ret+8(FP)
	VEOR  V0.B16, V0.B16, V0.B16
	RET

// func invertNEON(enc, dec *roundKeys, rounds uint64)
TEXT ·invertNEON(SB), NOSPLIT, $0-24
	MOVD   enc+0(FP), R0
	MOVD   dec+8(FP), R1
	MOVD   rounds+16(FP), R2
	ADD    R2<<4, R0, R0
	VLD1   (R0), [V0.B16]
	VST1.P [V0.B16], 16(R1)
	SUB    $1, R2, R2

middle:
	SUB    $16, R0, R0
	VLD1   (R0), [V0.B16]
	AESIMC V0.B16, V0.B16
	VST1.P [V0.B16], 16(R1)
	SUB    $1, R2, R2
	CBNZ   R2, middle
	SUB    $16, R0, R0
	VLD1   (R0), [V0.B16]
	VST1   [V0.B16], (R1)
	VEOR   V0.B16, V0.B16, V0.B16
	RET

// func encryptBlockNEON(keys *roundKeys, rounds uint64, b *[BlockSize]byte)
TEXT ·encryptBlockNEON(SB), NOSPLIT, $0-24
	MOVD   keys+0(FP), R0
	MOVD   rounds+8(FP), R1
	MOVD   b+16(FP), R2
	VLD1   (R2), [V0.B16]
	VLD1.P 16(R0), [V1.B16]
	SUB    $1, R1, R1

round:
	ENC(V1, V0)
	VLD1.P 16(R0), [V1.B16]
	SUB    $1, R1, R1
	CBNZ   R1, round
	ENCLAST(V1, V0)
	VLD1   (R0), [V1.B16]
	XOR(V1, V0)
	VST1   [V0.B16], (R2)
	VEOR   V1.B16, V1.B16, V1.B16
	VEOR   V0.B16, V0.B16, V0.B16
	RET

// func decryptBlockNEON(keys *roundKeys, rounds uint64, b *[BlockSize]byte)
TEXT ·decryptBlockNEON(SB), NOSPLIT, $0-24
	MOVD   keys+0(FP), R0
	MOVD   rounds+8(FP), R1
	MOVD   b+16(FP), R2
	VLD1   (R2), [V0.B16]
	VLD1.P 16(R0), [V1.B16]
	SUB    $1, R1, R1

round:
	DEC(V1, V0)
	VLD1.P 16(R0), [V1.B16]
	SUB    $1, R1, R1
	CBNZ   R1, round
	DECLAST(V1, V0)
	VLD1   (R0), [V1.B16]
	XOR(V1, V0)
	VST1   [V0.B16], (R2)
	VEOR   V1.B16, V1.B16, V1.B16
	VEOR   V0.B16, V0.B16, V0.B16
	RET
