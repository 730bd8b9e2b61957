package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// powerTable is the offset to the factors for multiplication.
const powerTable = 2 * planeTable

// Offsets in the Go type t10Consts, after the maps by position.
const (
	t10LastLow   = 256
	t10LastHigh  = 272
	t10Fold      = 288
	t10FoldPower = 352
)

// t10 generates CRC-16/T10-DIF by affine maps, with the tags of its fields.
func t10() *algorithm {
	a := byMaps("t10", 2)
	a.setup = tags
	a.constantPart = withTags
	a.short = true
	a.woven = true
	a.unit = 8
	return a
}

// t10Long generates T10-DIF for blocks so long that an additional sum costs little.
// Affine maps use one port, multiplications another, which t10 uses only for a few
// shuffles. Here two of eight vectors are multiplied, with which the load on both ports
// is even. The sum of their products is then folded like 16 more bytes of data.
func t10Long() *algorithm {
	a := t10()
	affine := a.fold
	a.name = "t10Long"
	a.extraSums = 1
	a.woven = false
	a.plain = true
	a.short = false
	a.setup = func(k *kernel) {
		tags(k)
		swap := ZMM()
		VMOVDQU64(byteSwap(), swap)
		k.constants = append(k.constants, swap)
	}
	a.fold = func(k *kernel, g *foldSet, disp, n int, load func(v, i int) VecVirtual) {
		if disp != step-128 {
			affine(k, g, disp, n, load)
			return
		}
		for v := range n {
			constant := ZMM()
			VMOVDQU64(mem(g.table, powerTable+disp+64*v), constant)
			for i := range g.n {
				d, even, odd := load(v, i), ZMM(), ZMM()
				VPSHUFB(k.constants[0], d, d)
				VPCLMULQDQ(U8(0x00), constant, d, even)
				VPCLMULQDQ(U8(0x11), constant, d, odd)
				VPTERNLOGQ(U8(xor3), even, odd, g.sums[i][2])
				otherHere()
			}
		}
	}
	a.finish = func(k *kernel, sums []VecVirtual) {
		// In the order of the data again, the upper 64 bits are at distance 1 and
		// the lower ones at 0.
		products := sums[2]
		VPSHUFB(reversal(), products, products)
		consts := load64(k.run, runConsts)
		for half, off := range []int{t10LastLow, t10LastHigh} {
			m := ZMM()
			VBROADCASTI64X2(mem(consts, off), m)
			VGF2P8AFFINEQB(U8(0), m, products, m)
			VPXORQ(m, sums[half], sums[half])
		}
	}
	return a
}

// tags initialises the registers of withTags.
func tags(k *kernel) {
	tag, step, count := ZMM(), ZMM(), ZMM()
	low := K()
	// Only the low 32 bits of each 64, the reference tag, are incremented.
	r := GP64()
	MOVL(U32(0x5555), r.As32())
	KMOVW(r.As32(), low)
	VPBROADCASTQ(mem(k.run, runTag), tag)
	VPBROADCASTD_Z(mem(k.run, runStep), low, step)
	VMOVDQU64(vectorOfWords("counting", 0, 1, 2, 3, 4, 5, 6, 7), count)
	VPMULLD(step, count, count)
	VPADDD(count, tag, tag)
	VPSLLD(U8(3), step, step)
	k.tag, k.step = tag, step
}

// withTags combines tags and guards, and increments the tags by eight blocks.
func withTags(k *kernel, guards VecVirtual) VecVirtual {
	t := ZMM()
	later(VPSHUFB, byteSwap(), k.tag, t)
	later(VPADDD, k.step, k.tag, k.tag)
	later(VPTERNLOGQ, U8(xor3), t, k.fix, guards)
	return guards
}

// byteSwap returns the byte shuffle that reverses the bytes of every 64 bits.
func byteSwap() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(i&8 | 7 - i&7)
	}
	return data("byteSwap", b[:])
}

// reversal returns the byte shuffle that reverses the bytes of every 128 bits.
func reversal() Mem {
	var b [64]byte
	for i := range b {
		b[i] = byte(15 - i&15)
	}
	return data("reversal", b[:])
}

func vectorOfWords(name string, q ...uint64) Mem {
	var b [64]byte
	for i, v := range q {
		b[i*8] = byte(v)
	}
	return data(name, b[:])
}

var datas = map[string]Mem{}

// data returns a global with the given bytes. Each global is created once.
func data(name string, b []byte) Mem {
	if m, ok := datas[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < len(b); i += 8 {
		var v uint64
		for j := 7; j >= 0; j-- {
			v = v<<8 | uint64(b[i+j])
		}
		DATA(i, U64(v))
	}
	datas[name] = m
	return m
}
