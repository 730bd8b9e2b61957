package xts

import (
	"github.com/softmkey/softmkey/internal/base/cpu"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/kernel/aesxts"
)

// Package mkey encrypts and signs in one pass and needs the expanded keys for it. They
// are secret, so a Cipher has no exported method that returns them.
func init() {
	aesxts.ScheduleOf = func(cipher any) unsafe.Pointer { return cipher.(*Cipher).key.Schedule() }
	aesxts.CipherIn = func(mem, key []byte) (any, error) {
		if err := checkLength("xts new", key); err != nil {
			return nil, err
		}
		return newUnchecked(cpu.Best(), mem, key)
	}
}
