// Package geometry computes lengths and offsets in the streams of a memory key: blocks
// that are each followed by a signature field, and the data units of AES-XTS.
package geometry

import (
	"fmt"
	"io"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/operr"
)

// Number is the type of lengths: int64 for files, uint64 for keys.
type Number interface{ int64 | uint64 }

// Stream describes a stream of a key's memory or wire domain: blocks, each followed by a
// field. A domain without a signature has no fields. Its blocks then have one byte,
// unless the other domain's block size applies.
type Stream[T Number] struct{ Block, Field T }

// Of returns the stream of a *sig.Format. A nil format is a domain without a signature.
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

// Len returns the length of the stream that holds n bytes of data. An incomplete last
// block has no field. Len is also the stream offset of data offset n; after the last byte
// of a block, that is the offset after the block's field.
func (s Stream[T]) Len(n T) T {
	if s.Field == 0 {
		return n
	}
	return n + n/s.Block*s.Field
}

// Data returns the number of data bytes in the first n bytes of the stream. Bytes of a
// field do not count.
func (s Stream[T]) Data(n T) T {
	if s.Field == 0 {
		return n
	}
	return n/s.Stride()*s.Block + min(n%s.Stride(), s.Block)
}

// Missing returns the number of bytes that a stream of n bytes lacks in the field of its
// last block. If it is not 0, the stream was truncated.
func (s Stream[T]) Missing(n T) T {
	if rest := n % s.Stride(); s.Signed() && rest >= s.Block {
		return s.Stride() - rest
	}
	return 0
}

// Truncated returns the error of an operation on a stream of n bytes that lacks a part of its last block's field, or
// the whole field: it was truncated. It returns nil for all other lengths. An incomplete last block has no field.
func (s Stream[T]) Truncated(op string, n T) *operr.Error {
	missing := s.Missing(n)
	if missing == 0 {
		return nil
	}
	return &operr.Error{Op: op, Errno: syscall.EINVAL, Err: io.ErrUnexpectedEOF,
		Reason: fmt.Sprintf("input of %d bytes: block %d has only %d of the %d bytes of its field, the stream was truncated", n, n/s.Stride(), s.Field-missing, s.Field)}
}

// Boundary returns the smallest multiple of block data bytes whose stream is a whole
// number of data units; unit 0 means no crypto. The stream is also a multiple of 16
// bytes. CheckJob compares remainders modulo 16, so it gives the same result for the rest
// of a job after a boundary as for the whole job.
func (s Stream[T]) Boundary(block, unit T) T {
	if unit == 0 {
		return block
	}
	u, n := LCM(unit, 16), s.Len(block)
	return block * (u / gcd(u, n))
}

// DefaultUnit returns the data unit for an encrypted stream: a block with its field.
// Without fields it is the other domain's block or, if that has no fields either, 512
// bytes.
func DefaultUnit[T Number](encrypted, other Stream[T]) T {
	switch {
	case encrypted.Signed():
		return encrypted.Stride()
	case other.Signed():
		return other.Block
	}
	return 512
}

// CheckJob applies the job-size rule of mlx5dv_wr_set_mkey_crypto(3) to n bytes of
// encrypted stream, and returns EMSGSIZE if they violate it. The text of the rule allows
// a last data unit of 8 bytes (528 bytes in units of 520). AES-XTS needs at least 16, so
// CheckJob refuses 8.
func CheckJob[T Number](n, unit T) error {
	if rest := n % unit; rest != 0 && (n%16 != 0 || rest > unit-16 || rest < 16) {
		return failure.New("mkey access", syscall.EMSGSIZE, "%d bytes of encrypted stream in data units of %d: the last unit must be whole, or the bytes a multiple of 16 and the last unit 16 to %d", n, unit, unit-16)
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
