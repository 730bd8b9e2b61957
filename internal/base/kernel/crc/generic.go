package crc

import (
	"encoding/binary"
	"sync"
)

// The generic implementation processes eight bytes per step with eight tables. A register
// shorter than 64 bits is kept at the end at which bits are shifted out, so that one loop
// serves every width: at the top if the most significant bit comes first, else at the
// bottom. A block is a multiple of 8 bytes, so there is no remainder.

// table8[k][b] is the register after byte b followed by k zero bytes, starting with an
// empty register.
type table8 [8][256]uint64

var (
	t10Slices    = sync.OnceValue(func() *table8 { return newTableMSB(0x8BB7 << 48) })
	crc32Slices  = sync.OnceValue(func() *table8 { return newTableMSB(0x04C11DB7 << 32) })
	crc32cSlices = sync.OnceValue(func() *table8 { return newTableLSB(0x82F63B78) })
	crc64Slices  = sync.OnceValue(func() *table8 { return newTableLSB(0x9A6C9329AC4BC9B5) })
)

func newTableMSB(poly uint64) *table8 {
	t := new(table8)
	for b := range 256 {
		r := uint64(b) << 56
		for k := range 8 {
			for range 8 {
				r = r<<1 ^ poly&-(r>>63)
			}
			t[k][b] = r
		}
	}
	return t
}

func newTableLSB(poly uint64) *table8 {
	t := new(table8)
	for b := range 256 {
		r := uint64(b)
		for k := range 8 {
			for range 8 {
				r = r>>1 ^ poly&-(r&1)
			}
			t[k][b] = r
		}
	}
	return t
}

func updateMSB(r uint64, t *table8, p []byte) uint64 {
	for len(p) >= 8 {
		r ^= binary.BigEndian.Uint64(p)
		r = t[7][r>>56] ^ t[6][r>>48&0xFF] ^ t[5][r>>40&0xFF] ^ t[4][r>>32&0xFF] ^
			t[3][r>>24&0xFF] ^ t[2][r>>16&0xFF] ^ t[1][r>>8&0xFF] ^ t[0][r&0xFF]
		p = p[8:]
	}
	return r
}

func updateLSB(r uint64, t *table8, p []byte) uint64 {
	for len(p) >= 8 {
		r ^= binary.LittleEndian.Uint64(p)
		r = t[7][r&0xFF] ^ t[6][r>>8&0xFF] ^ t[5][r>>16&0xFF] ^ t[4][r>>24&0xFF] ^
			t[3][r>>32&0xFF] ^ t[2][r>>40&0xFF] ^ t[1][r>>48&0xFF] ^ t[0][r>>56]
		p = p[8:]
	}
	return r
}

// updateCSUM adds up 32-bit words. Folding the sum gives the ones' complement sum of the
// 16-bit words, because 2^16 - 1 divides 2^32 - 1. The 64 bits overflow only for a block
// of 16 GiB.
func updateCSUM(r uint64, p []byte) uint64 {
	for len(p) >= 8 {
		x := binary.BigEndian.Uint64(p)
		r += x>>32 + x&0xFFFFFFFF
		p = p[8:]
	}
	return r
}

// foldCSUM completes an IP checksum. Each step preserves the value modulo 2^16 - 1 and
// never changes a nonzero sum to zero, which keeps the two zeros of ones' complement
// arithmetic distinct.
func foldCSUM(r uint64) uint64 {
	r = r>>32 + r&0xFFFFFFFF
	r = r>>16 + r&0xFFFF
	r = r>>16 + r&0xFFFF
	r = r>>16 + r&0xFFFF
	return ^r & 0xFFFF
}

// sumGeneric returns the register at the end of a block.
func sumGeneric(kind Kind, seed uint64, p []byte) uint64 {
	switch kind {
	case T10:
		return updateMSB(seed, t10Slices(), p)
	case CSUM:
		return foldCSUM(updateCSUM(seed, p))
	case CRC32:
		return updateMSB(seed, crc32Slices(), p)
	case CRC32C:
		return updateLSB(seed, crc32cSlices(), p)
	default:
		return updateLSB(seed, crc64Slices(), p)
	}
}

// runGeneric executes a run block by block. It is the reference for the kernels of every
// tier.
func runGeneric(p *Plan, want []uint64, j *Job, m mode) uint64 {
	tag := j.Tag
	for i := range want {
		block := j.Src[i*j.SrcStride:][:p.size]
		if j.Dst != nil {
			copy(j.Dst[i*j.DstStride:][:p.size], block)
		}
		want[i] = p.wire(sumGeneric(p.kind, p.seed, block), tag)
		tag = nextTag(tag, j.Step)
	}
	return finish(p, want, j, m)
}

// finish stores or compares the fields of a run.
func finish(p *Plan, want []uint64, j *Job, m mode) (diff uint64) {
	if m == modeSum {
		return 0
	}
	for i, w := range want {
		f := j.Fields[i*j.FieldStride:]
		switch {
		case m == modeStore && p.field == 8:
			binary.LittleEndian.PutUint64(f, w)
		case m == modeStore:
			binary.LittleEndian.PutUint32(f, uint32(w))
		case p.field == 8:
			diff |= binary.LittleEndian.Uint64(f) ^ w
		default:
			diff |= uint64(binary.LittleEndian.Uint32(f)) ^ w
		}
	}
	return diff
}
