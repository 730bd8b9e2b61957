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

// The parts in which a fault can be injected.
const (
	Data   Part = iota // the block: a bad guard
	Guard              // the guard of a T10-DIF, or a CRC
	AppTag             // T10-DIF only
	RefTag             // T10-DIF only
)

// Inject flips one bit in a part of the block of that number in a stream with
// the signature f, and returns the error that a check of the stream should
// answer with, from the plain definitions. It panics if the stream has no such
// block or f no such part.
func Inject(r *rand.Rand, f *sig.Format, stream []byte, number uint64, part Part) sig.Error {
	offset := number * uint64(f.Stride())
	block := stream[offset:][:f.BlockSize]
	field := stream[offset:][f.BlockSize:f.Stride()]
	e := sig.Error{Kind: sig.BadGuard, Block: number, Offset: offset}
	from, to := 0, len(field)
	if f.Type == sig.T10DIF {
		switch part {
		case Data, Guard:
			to = 2
		case AppTag:
			e.Kind, from, to = sig.BadAppTag, 2, 4
		case RefTag:
			e.Kind, from = sig.BadRefTag, 4
		}
	} else if part > Guard {
		panic(fmt.Sprintf("mkeytest: %v has no part %d", f.Type, part))
	}
	if part == Data {
		Flip(r, block, 1)
	} else {
		Flip(r, field[from:to], 1)
	}
	e.Stored = value(f, field[from:to])
	e.Computed = value(f, Field(f, number, block)[from:to])
	return e
}
