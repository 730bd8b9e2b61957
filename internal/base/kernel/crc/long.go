package crc

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

// newPastPiece returns the map of a register to its value after a piece of zeros.
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
	if rows[kind].poly == 0 {
		return front + behind
	}
	return constantsOf[kind].pastPiece().apply(front) ^ behind
}

// runLong executes a run of blocks that are longer than the tables.
func runLong(p *Plan, want []uint64, j *Job, m mode) (diff uint64) {
	first := p.size % piece
	if first == 0 {
		first = piece
	}
	// The short piece is the first one and gets the seed.
	head := newPlan(p.tier, p.kind, first, p.seed != 0)
	body := newPlan(p.tier, p.kind, piece, false)
	k, tag := &rows[p.kind], j.Tag
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
		reg := k.unwire(sums[0])
		for at := first; at < p.size; {
			n := min(pieces, (p.size-at)/piece)
			part.Src = src[at:][:n*piece]
			if dst != nil {
				part.Dst = dst[at:][:n*piece]
			}
			runTier(&body, sums[:n], &part, modeSum)
			for _, s := range sums[:n] {
				reg = join(p.kind, reg, k.unwire(s))
			}
			at += n * piece
		}
		want[i] = k.wire(reg, tag)
		tag = nextTag(tag, j.Step)
	}
	return finish(p, want, j, m)
}
