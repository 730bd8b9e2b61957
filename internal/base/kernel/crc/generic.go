package crc

import "encoding/binary"

// The generic implementation processes eight bytes per step with eight tables. A register
// shorter than 64 bits is kept at the end at which bits are shifted out, so that one loop
// serves every width: at the top if the most significant bit comes first, else at the
// bottom. A block is a multiple of 8 bytes, so there is no remainder.

// table8[k][b] is the register after byte b followed by k zero bytes, starting with an
// empty register.
type table8 [8][256]uint64

// newSlices computes the tables of a kind.
func newSlices(k *row) *table8 {
	t := new(table8)
	for b := range 256 {
		r := uint64(b)
		if !k.reflected {
			r <<= 56
		}
		for i := range t {
			for range 8 {
				if k.reflected {
					r = r>>1 ^ k.mirrored()&-(r&1)
				} else {
					r = r<<1 ^ k.top(k.poly)&-(r>>63)
				}
			}
			t[i][b] = r
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

// foldCSUM folds an IP checksum to 16 bits. Each step preserves the value modulo 2^16 - 1 and
// never changes a nonzero sum to zero, which keeps the two zeros of ones' complement
// arithmetic distinct.
func foldCSUM(r uint64) uint64 {
	r = r>>32 + r&0xFFFFFFFF
	r = r>>16 + r&0xFFFF
	r = r>>16 + r&0xFFFF
	r = r>>16 + r&0xFFFF
	return r
}

// sumGeneric returns the register at the end of a block.
func sumGeneric(kind Kind, seed uint64, p []byte) uint64 {
	switch k := &rows[kind]; {
	case k.poly == 0:
		return updateCSUM(seed, p)
	case k.reflected:
		return updateLSB(seed, constantsOf[kind].slices(), p)
	}
	return updateMSB(seed, constantsOf[kind].slices(), p)
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
		want[i] = rows[p.kind].wire(sumGeneric(p.kind, p.seed, block), tag)
		tag = nextTag(tag, j.Step)
	}
	return finish(p, want, j, m)
}

// finish stores or compares the fields of a run.
func finish(p *Plan, want []uint64, j *Job, m mode) (diff uint64) {
	if m == modeSum {
		return 0
	}
	size := p.kind.FieldSize()
	for i, w := range want {
		f := j.Fields[i*j.FieldStride:]
		switch {
		case m == modeStore && size == 8:
			binary.LittleEndian.PutUint64(f, w)
		case m == modeStore:
			binary.LittleEndian.PutUint32(f, uint32(w))
		case size == 8:
			diff |= binary.LittleEndian.Uint64(f) ^ w
		default:
			diff |= uint64(binary.LittleEndian.Uint32(f)) ^ w
		}
	}
	return diff
}
