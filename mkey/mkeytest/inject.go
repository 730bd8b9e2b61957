package mkeytest

import (
	"fmt"
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

// Part is a part of a block and its field.
type Part uint8

// Parts of a block for fault injection.
const (
	Data   Part = iota // the block, which causes a bad guard
	Guard              // the guard of a T10-DIF, or a CRC
	AppTag             // T10-DIF only
	RefTag             // T10-DIF only
)

// Inject flips one random bit in a part of the block with a number, in a stream with
// signature f. It returns the error that a check of the stream should report, computed
// from the definitions. It panics if the stream does not have the block or f does not
// have the part.
func Inject(r *rand.Rand, f *sig.Format, stream []byte, number uint64, part Part) sig.Error {
	size := f.Block()
	from, to := 0, size
	switch {
	case part == Data:
	case f.Type != sig.T10DIF && part == Guard:
		from, to = size, f.Stride()
	case f.Type != sig.T10DIF:
		panic(fmt.Sprintf("mkeytest: %v has no part %d", f.Type, part))
	case part == Guard:
		from, to = size, size+2
	case part == AppTag:
		from, to = size+2, size+4
	default:
		from, to = size+4, size+8
	}
	start := int(number) * f.Stride()
	return FlipBit(f, stream, start+from+r.IntN(to-from), r.IntN(8))
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
