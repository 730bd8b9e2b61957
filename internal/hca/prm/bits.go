package prm

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/bitfield"
	"github.com/softmkey/softmkey/internal/base/failure"
)

var be = binary.BigEndian

// Bits and SetBits are those of package bitfield.
func Bits(b []byte, off, n int) uint64 { return bitfield.Get(b, off, n) }

func SetBits(b []byte, off, n int, v uint64) { bitfield.Set(b, off, n, v) }

func refuse(op, format string, args ...any) error {
	return failure.New(op, syscall.EINVAL, "%s", fmt.Sprintf(format, args...))
}
