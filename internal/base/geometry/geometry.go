// Package geometry computes lengths and positions in the streams of a memory key: blocks
// that are each followed by a signature's field, and the data units of AES-XTS.
package geometry

import (
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// Number is the type of lengths: int64 for files, uint64 for keys.
type Number interface{ int64 | uint64 }

// Stream is a domain of a key: blocks, each followed by a field. A domain without a
// signature has no fields, and blocks of one byte unless the other domain's matter.
type Stream[T Number] struct{ Block, Field T }

// Of returns the stream of a *sig.Format, which may be nil: a domain without a signature.
func Of[T Number, F any, P interface {
	*F
	Stride() int
	FieldSize() int
}](f P) Stream[T] {
	if f == nil {
		return Stream[T]{Block: 1}
	}
	return Stream[T]{Block: T(f.Stride() - f.FieldSize()), Field: T(f.FieldSize())}
}

// Signed reports whether the blocks have fields.
func (s Stream[T]) Signed() bool { return s.Field != 0 }

// Stride returns the length of a block with its field.
func (s Stream[T]) Stride() T { return s.Block + s.Field }

// Len returns the length of the stream that holds n bytes of data. A last block that is not
// complete has no field. It is also the position of data offset n; right behind a block's
// last byte that is the position behind the block's field.
func (s Stream[T]) Len(n T) T {
	if s.Field == 0 {
		return n
	}
	return n + n/s.Block*s.Field
}

// Data returns the bytes of data in the first n bytes of the stream. A part of a field
// counts as none.
func (s Stream[T]) Data(n T) T {
	if s.Field == 0 {
		return n
	}
	return n/s.Stride()*s.Block + min(n%s.Stride(), s.Block)
}

// Missing returns how many bytes of the last block's field a stream of n bytes lacks: 0, or
// the stream was truncated.
func (s Stream[T]) Missing(n T) T {
	if rest := n % s.Stride(); s.Signed() && rest >= s.Block {
		return s.Stride() - rest
	}
	return 0
}

// Boundary returns the least multiple of block bytes of data whose stream is a whole number
// of data units; unit 0 is no crypto. The stream is a multiple of 16 bytes too, so that
// CheckJob, which compares remainders of 16, gives the same answer for the part of a job
// behind a boundary as for the whole job.
func (s Stream[T]) Boundary(block, unit T) T {
	if unit == 0 {
		return block
	}
	u, n := LCM(unit, 16), s.Len(block)
	return block * (u / gcd(u, n))
}

// DefaultUnit returns the data unit that fits a block of the encrypted stream: the block
// with its field or, if it has none, the other domain's block, or 512 bytes.
func DefaultUnit[T Number](encrypted, other Stream[T]) T {
	switch {
	case encrypted.Signed():
		return encrypted.Stride()
	case other.Signed():
		return other.Block
	}
	return 512
}

// CheckJob applies the job-size rule of mlx5dv_wr_set_mkey_crypto(3) to n bytes of encrypted
// stream: EMSGSIZE. The text of the rule admits a last data unit of 8 bytes (528 bytes in
// units of 520), which AES-XTS cannot process: it needs 16.
func CheckJob[T Number](n, unit T) error {
	if rest := n % unit; rest != 0 && (n%16 != 0 || rest > unit-16 || rest < 16) {
		return operr.New("mkey access", syscall.EMSGSIZE, "%d bytes of encrypted stream in data units of %d: the last unit must be whole, or the bytes a multiple of 16 and the last unit 16 to %d", n, unit, unit-16)
	}
	return nil
}

// LCM returns the least common multiple of two positive numbers.
func LCM[T Number](a, b T) T { return a / gcd(a, b) * b }

func gcd[T Number](a, b T) T {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
