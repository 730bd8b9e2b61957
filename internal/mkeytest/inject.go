package mkeytest

import (
	"math/rand/v2"

	"github.com/softmkey/softmkey/sig"
)

// Flip flips count random bits of b.
func Flip(r *rand.Rand, b []byte, count int) {
	for range count {
		if len(b) > 0 {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
	}
}

// FlipBit flips one bit, 0 to 7, of the byte at pos in a correct stream with signature f.
// It returns the error that a check of the whole stream should report, computed from the
// definitions. It panics if the byte is after the last complete block.
func FlipBit(f *sig.Format, stream []byte, pos, bit int) sig.Error {
	stream[pos] ^= 1 << bit
	size := f.Block()
	number := uint64(pos / f.Stride())
	e := sig.Error{Kind: sig.BadGuard, Block: number, Offset: number * uint64(f.Stride())}
	block := stream[e.Offset:][:f.Stride()]
	field := block[size:]
	from, to := 0, len(field)
	if f.Type == sig.T10DIF {
		switch within := pos - int(e.Offset) - size; {
		case within < 2:
			to = 2
		case within < 4:
			e.Kind, from, to = sig.BadAppTag, 2, 4
		default:
			e.Kind, from = sig.BadRefTag, 4
		}
	}
	e.Stored = value(f, field[from:to])
	e.Computed = value(f, Field(f, number, block[:size])[from:to])
	return e
}

// Protect returns data as a stream with signature f: a field after every complete block,
// computed from the definitions.
func Protect(f *sig.Format, data []byte) (stream []byte) {
	for number := uint64(0); len(data) >= f.Block(); number++ {
		block := data[:f.Block()]
		data = data[len(block):]
		stream = append(append(stream, block...), Field(f, number, block)...)
	}
	return append(stream, data...)
}
