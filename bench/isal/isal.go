// Package isal binds Intel's ISA-L (Debian libisal-dev), with which block signatures are
// compared, and adds the loop over blocks of a storage stack.
package isal

// #cgo LDFLAGS: -lisal
// #include "t10dif.h"
import "C"

import "unsafe"

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// CRC16T10DIF calls crc16_t10dif.
func CRC16T10DIF(seed uint16, b []byte) uint16 {
	return uint16(C.crc16_t10dif(C.uint16_t(seed), pointer(b), C.uint64_t(len(b))))
}

// CRC32IEEE calls crc32_ieee: most significant bit first, inverted before and after, so
// that a seed of 0 starts the register with ones.
func CRC32IEEE(seed uint32, b []byte) uint32 {
	return uint32(C.crc32_ieee(C.uint32_t(seed), pointer(b), C.uint64_t(len(b))))
}

// CRC32ISCSI calls crc32_iscsi: the register starts with the seed and is not inverted.
func CRC32ISCSI(seed uint32, b []byte) uint32 {
	return uint32(C.crc32_iscsi((*C.uchar)(pointer(b)), C.int(len(b)), C.uint(seed)))
}

// Sum selects an ISA-L function, which one loop in C calls for each of n blocks of size
// bytes, stride bytes apart.
type Sum uint8

const (
	SumCRC32 Sum = iota
	SumCRC32C
	SumCRC64 // with the ECMA polynomial: ISA-L 2.30 lacks ours, and all polynomials cost the same
)

// DIF is a T10-DIF context as in storage stacks: type 1, tags, CRC guard.
type DIF struct {
	BlockSize int
	Seed      uint16
	AppTag    uint16
	RefTag    uint32
}

func (d DIF) context() C.struct_dif {
	return C.struct_dif{
		block_size: C.uint32_t(d.BlockSize), seed: C.uint16_t(d.Seed), app_tag: C.uint16_t(d.AppTag),
		app_mask: 0xFFFF, ref_tag: C.uint32_t(d.RefTag), check_guard: true, check_app: true, check_ref: true,
	}
}
