package filecopy

import (
	"fmt"

	"github.com/softmkey/softmkey/sig"
)

// stream is how a domain's bytes are laid out: blocks, each followed by a field.
// Without a signature it has blocks of one byte and no fields.
type stream struct{ block, field int64 }

func streamOf(f *sig.Format) stream {
	if f == nil {
		return stream{block: 1}
	}
	return stream{block: int64(f.Stride() - f.FieldSize()), field: int64(f.FieldSize())}
}

func (s stream) signed() bool  { return s.field != 0 }
func (s stream) stride() int64 { return s.block + s.field }

// length returns the length of the stream that holds n bytes of data.
func (s stream) length(n int64) int64 { return n + n/s.block*s.field }

// data returns the bytes of data in a stream of n bytes. A stream that ends with
// a field missing or cut was truncated.
func (s stream) data(n int64) (int64, error) {
	blocks, rest := n/s.stride(), n%s.stride()
	if s.signed() && rest >= s.block {
		return 0, fmt.Errorf("%d bytes: block %d has only %d of the %d bytes of its field, the stream was truncated", n, blocks, rest-s.block, s.field)
	}
	return blocks*s.block + rest, nil
}

// blocks returns the number of whole blocks in n bytes of data.
func (s stream) blocks(n int64) int64 { return n / s.block }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func lcm(a, b int64) int64 { return a / gcd(a, b) * b }
