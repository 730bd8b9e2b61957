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

// fieldOf returns a field of n bits at an offset.
type fieldOf func(off, n int) uint64

// fieldsOf returns the fields of a command.
func fieldsOf(in []byte) fieldOf { return func(off, n int) uint64 { return Bits(in, off, n) } }

// from returns the fields of a part that begins at an offset.
func (f fieldOf) from(at int) fieldOf { return func(off, n int) uint64 { return f(at+off, n) } }

func refuse(op, format string, args ...any) error {
	return failure.New(op, syscall.EINVAL, "%s", fmt.Sprintf(format, args...))
}
