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

// CipherIn returns the *xts.Cipher of a key in memory of the caller, as xts.NewIn does, but
// takes two equal halves too. Package xts sets it during initialisation.
var CipherIn func(mem, key []byte) (cipher any, err error)
