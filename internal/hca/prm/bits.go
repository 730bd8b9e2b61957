package prm

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

var be = binary.BigEndian

// Bits returns the n bits, at most 64, at an offset in bits, most significant bit first.
// Bits outside of b are zero, like the missing fields of a short command.
func Bits(b []byte, off, n int) (v uint64) {
	for i := off; i < off+n; i++ {
		v <<= 1
		if i>>3 < len(b) {
			v |= uint64(b[i>>3]>>(7-i&7)) & 1
		}
	}
	return v
}

// SetBits stores the low n bits of v at an offset in bits. Bits outside of b are dropped.
func SetBits(b []byte, off, n int, v uint64) {
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

func refuse(op, format string, args ...any) error {
	return failure.New(op, syscall.EINVAL, "%s", fmt.Sprintf(format, args...))
}
