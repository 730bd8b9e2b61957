package xts

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

// Package mkey encrypts and signs in one pass and needs the expanded keys for it. They
// are secret, so a Cipher has no exported method that returns them.
func init() {
	aesxts.ScheduleOf = func(cipher any) unsafe.Pointer { return cipher.(*Cipher).key.Schedule() }
}
