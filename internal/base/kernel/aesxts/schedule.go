package aesxts

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Schedule returns the expanded keys for the kernels of package fused, or nil if the tier
// has no fused kernels. They are valid until Close.
func (k *Key) Schedule() unsafe.Pointer {
	if k.tier != cpu.AVX512 {
		return nil
	}
	return unsafe.Pointer(k.s)
}

// ScheduleOf returns the Schedule of the key in a *xts.Cipher. Package xts sets it.
var ScheduleOf func(cipher any) unsafe.Pointer
