package crc

import (
	"math/bits"
	"sync"
)

// Blocks longer than the tables are divided into pieces. One kernel call computes the
// sums of many pieces, as if they were blocks. The sums are then combined: each is
// multiplied by the power of x for the bytes after its piece.

// piece is the length of the pieces of long blocks, in bytes.
const piece = 4096

// pieces is the number of pieces per kernel call.
const pieces = 64

// nibbles is a linear map of the register, given by the image of each value of each of
// its 16 nibbles.
type nibbles [16][16]uint64

func (t *nibbles) apply(r uint64) (v uint64) {
	for i := range t {
		v ^= t[i][r>>(4*i)&15]
	}
	return v
}

// pastPiece maps a register to its value after a piece of zeros.
var pastPiece = [...]func() *nibbles{
	T10:    sync.OnceValue(func() *nibbles { return newPastPiece(T10) }),
	CRC32:  sync.OnceValue(func() *nibbles { return newPastPiece(CRC32) }),
	CRC32C: sync.OnceValue(func() *nibbles { return newPastPiece(CRC32C) }),
	CRC64:  sync.OnceValue(func() *nibbles { return newPastPiece(CRC64) }),
}

func newPastPiece(kind Kind) *nibbles {
	t := new(nibbles)
	zeros := make([]byte, piece)
	for bit := range 64 {
		image := sumGeneric(kind, 1<<bit, zeros)
		for v := range 16 {
			if v>>(bit%4)&1 != 0 {
				t[bit/4][v] ^= image
			}
		}
	}
	return t
}

// join combines the sum of the bytes before a piece with the sum of the piece.
func join(kind Kind, front, behind uint64) uint64 {
	if kind == CSUM {
		return front + behind
	}
	return pastPiece[kind]().apply(front) ^ behind
}

// unwire is the inverse of Plan.wire without tags: it returns the register or, for an IP
// checksum, the sum.
func unwire(kind Kind, field uint64) uint64 {
	switch kind {
	case T10:
		return bits.ReverseBytes64(field)
	case CSUM:
		return ^(bits.ReverseBytes64(field) >> 48) & 0xFFFF
	case CRC32:
		return uint64(^bits.ReverseBytes32(uint32(field))) << 32
	case CRC32C:
		return uint64(^uint32(field))
	default:
		return ^field
	}
}

// runLong executes a run of blocks that are longer than the tables.
func runLong(p *Plan, want []uint64, j *Job, m mode) (diff uint64) {
	first := p.size % piece
	if first == 0 {
		first = piece
	}
	// The short piece is the first one and gets the seed.
	head := newPlan(p.tier, p.kind, first, p.seed != 0, p.zen5)
	body := newPlan(p.tier, p.kind, piece, false, p.zen5)
	tag := j.Tag
	var sums [pieces]uint64
	for i := range want {
		src := j.Src[i*j.SrcStride:][:p.size]
		part := Job{Src: src[:first], SrcStride: piece, DstStride: piece}
		var dst []byte
		if j.Dst != nil {
			dst = j.Dst[i*j.DstStride:][:p.size]
			part.Dst = dst[:first]
		}
		runTier(&head, sums[:1], &part, modeSum)
		reg := unwire(p.kind, sums[0])
		for at := first; at < p.size; {
			n := min(pieces, (p.size-at)/piece)
			part.Src = src[at:][:n*piece]
			if dst != nil {
				part.Dst = dst[at:][:n*piece]
			}
			runTier(&body, sums[:n], &part, modeSum)
			for _, s := range sums[:n] {
				reg = join(p.kind, reg, unwire(p.kind, s))
			}
			at += n * piece
		}
		if p.kind == CSUM {
			reg = foldCSUM(reg)
		}
		want[i] = p.wire(reg, tag)
		tag = nextTag(tag, j.Step)
	}
	return finish(p, want, j, m)
}
