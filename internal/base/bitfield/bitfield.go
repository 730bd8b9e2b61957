// Package bitfield reads and writes the fields of messages in network order, by their offsets in bits.
package bitfield

// Get returns the n bits, at most 64, at an offset in bits, most significant bit first.
// Bits outside of b are zero, like the missing fields of a short command.
func Get(b []byte, off, n int) (v uint64) {
	for i := off; i < off+n; i++ {
		v <<= 1
		if i>>3 < len(b) {
			v |= uint64(b[i>>3]>>(7-i&7)) & 1
		}
	}
	return v
}

// Set stores the low n bits of v at an offset in bits. Bits outside of b are dropped.
func Set(b []byte, off, n int, v uint64) {
	for i := off + n - 1; i >= off; i-- {
		if i>>3 < len(b) {
			mask := byte(1) << (7 - i&7)
			b[i>>3] &^= mask
			if v&1 != 0 {
				b[i>>3] |= mask
			}
		}
		v >>= 1
	}
}

// Fields are fields of a message, which are read into variables or written from them: one list of the fields
// serves both directions.
type Fields struct {
	b     []byte
	at    int // offset in bits to which the fields' offsets are added
	write bool
}

// Read returns the fields of b, to be read.
func Read(b []byte, at int) Fields { return Fields{b, at, false} }

// Write returns the fields of b, to be written.
func Write(b []byte, at int) Fields { return Fields{b, at, true} }

// Writing reports whether the fields are written.
func (f Fields) Writing() bool { return f.write }

// Number reads or writes a number of n bits.
func Number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](f Fields, off, n int, v *T) {
	if f.write {
		Set(f.b, f.at+off, n, uint64(*v))
	} else {
		*v = T(Get(f.b, f.at+off, n))
	}
}

// Flag reads or writes a bit.
func Flag(f Fields, off int, v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	if Number(f, off, 1, &n); !f.write {
		*v = n != 0
	}
}

// Bytes reads or writes bytes. Those outside of the message stay as they are.
func Bytes(f Fields, off int, v []byte) {
	at := (f.at + off) / 8
	switch {
	case at >= len(f.b):
	case f.write:
		copy(f.b[at:], v)
	default:
		copy(v, f.b[at:])
	}
}
