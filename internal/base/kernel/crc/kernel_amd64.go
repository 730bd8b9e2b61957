//go:build !purego

package crc

import (
	"unsafe"

	xcpu "golang.org/x/sys/cpu"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Every processor with the other instructions of the AVX-512 tier has GFNI and VBMI, but
// a hypervisor may hide them. The kernels of the VAES tier are used then.
var hasAVX512 = cpu.HasMaps() && xcpu.X86.HasAVX512VBMI

// zen5Set reports whether a tier has a second set of kernels, and whether this processor
// should use it. The set is for AMD's Zen 5 and later. It differs in these points:
//
//   - CRC32 and CRC32C are computed by affine maps if the run does not copy. With a copy
//     that is up to a tenth slower than by products.
//   - Copies do not keep to the cache lines of the destination: a store across two lines
//     takes no longer than another one.
//   - Copies of long blocks do not prefetch, which would delay their loads.
func zen5Set(tier cpu.Tier) (exists, prefer bool) {
	exists = tier == cpu.AVX512 && hasAVX512
	return exists, exists && cpu.MultipliesSlowly()
}

func methodFor(tier cpu.Tier, kind Kind) method {
	wide := tier == cpu.AVX512 && hasAVX512
	switch {
	case kind == CSUM:
		return bySums
	case kind == T10 && wide:
		return byMaps
	case (kind == T10 || kind == CRC32) && !wide:
		return bySwaps
	}
	return byProducts
}

// linesFor returns the constants of the kernel that reads whole cache lines, or nil if
// there is none for a kind and block size.
func linesFor(tier cpu.Tier, kind Kind, size int) unsafe.Pointer {
	switch {
	case tier != cpu.AVX512 || !hasAVX512 || kind == CSUM:
		return nil
	case kind == T10 && size > lineBlock && size%lineBlock == 0:
		return unsafe.Pointer(t10Maps())
	case size != lineBlock:
		return nil
	case kind == T10:
		return unsafe.Pointer(t10Lines())
	case kind == CRC64:
		return unsafe.Pointer(crc64Lines())
	}
	return unsafe.Pointer(halfLines[kind]())
}

// byLines reports whether the kernel that reads whole cache lines applies to the run. For
// blocks of 512 bytes, the run must have at least four blocks of each phase, which are
// processed side by side.
func (r *run) byLines(kind Kind) bool {
	unit := uintptr(kind.FieldSize()) // blocks are aligned to the field size
	return r.lines != nil && (uintptr(r.src)|uintptr(r.srcStride))%unit == 0 &&
		(r.size > lineBlock || r.n >= roundPhases/uint64(unit))
}

// toLines reports whether the kernel that copies to whole cache lines is faster for the run, of
// [T10] or [CSUM]: blocks are short, and most of them do not begin on a cache line.
func (r *run) toLines() bool {
	return r.size >= lineBlock && r.size < t10LongSize && (uintptr(r.dst)|uintptr(r.dstStride))%64 != 0
}

// roundPhases divided by the unit is the number of blocks in one round of the line
// kernels. They always process at least one round, and would read beyond a shorter run
// (roundBlocks in the generator).
const roundPhases = 4 * 64

//go:noescape
func t10LinesAVX512(r *run)

//go:noescape
func t10LongLinesAVX512(r *run)

//go:noescape
func crcLinesAVX512(r *run)

//go:noescape
func crc32cLinesAVX512(r *run)

//go:noescape
func crcMSBLinesAVX512(r *run)

//go:noescape
func t10AVX512(r *run)

//go:noescape
func t10CopyAVX512(r *run)

//go:noescape
func t10CopyToLinesAVX512(r *run)

//go:noescape
func t10LongAVX512(r *run)

//go:noescape
func t10LongCopyAVX512(r *run)

//go:noescape
func t10LongCopyPlainAVX512(r *run)

//go:noescape
func crcAVX512(r *run)

//go:noescape
func crcCopyAVX512(r *run)

//go:noescape
func crcMSBAVX512(r *run)

//go:noescape
func crcMSBCopyAVX512(r *run)

//go:noescape
func crcMapsAVX512(r *run)

//go:noescape
func csumAVX512(r *run)

//go:noescape
func csumCopyAVX512(r *run)

//go:noescape
func csumCopyPlainAVX512(r *run)

//go:noescape
func csumCopyToLinesAVX512(r *run)

//go:noescape
func crcVAES(r *run)

//go:noescape
func crcCopyVAES(r *run)

//go:noescape
func crcSwapVAES(r *run)

//go:noescape
func crcSwapCopyVAES(r *run)

//go:noescape
func crcAVX2(r *run)

//go:noescape
func crcCopyAVX2(r *run)

//go:noescape
func crcSwapAVX2(r *run)

//go:noescape
func crcSwapCopyAVX2(r *run)

//go:noescape
func csumAVX2(r *run)

//go:noescape
func csumCopyAVX2(r *run)

// t10LongSize is the block size from which t10Long is faster, despite its overhead.
const t10LongSize = 1024

// kernel calls the assembly. The calls are direct, because a call through a variable
// would move the run to the heap.
func kernel(p *Plan, copies bool, r *run) {
	tier, kind := p.tier, p.kind
	if tier == cpu.AVX512 && hasAVX512 {
		byLines := !copies && r.byLines(kind)
		toLines := copies && !p.zen5 && r.toLines()
		switch {
		case p.byMaps(copies):
			crcMapsAVX512(r)
		case byLines && kind == T10 && r.size > lineBlock:
			t10LongLinesAVX512(r)
		case byLines && kind == T10:
			t10LinesAVX512(r)
		case byLines && kind == CRC32:
			crcMSBLinesAVX512(r)
		case byLines && kind == CRC32C:
			crc32cLinesAVX512(r)
		case byLines:
			crcLinesAVX512(r)
		case kind == T10 && !copies && r.size >= t10LongSize:
			t10LongAVX512(r)
		case kind == T10 && !copies:
			t10AVX512(r)
		case kind == T10 && r.size >= t10LongSize && p.zen5:
			t10LongCopyPlainAVX512(r)
		case kind == T10 && r.size >= t10LongSize:
			t10LongCopyAVX512(r)
		case kind == T10 && toLines:
			t10CopyToLinesAVX512(r)
		case kind == T10:
			t10CopyAVX512(r)
		case kind == CSUM && !copies:
			csumAVX512(r)
		case kind == CSUM && toLines:
			csumCopyToLinesAVX512(r)
		case kind == CSUM && r.size >= t10LongSize && p.zen5:
			csumCopyPlainAVX512(r)
		case kind == CSUM:
			csumCopyAVX512(r)
		case kind == CRC32 && !copies:
			crcMSBAVX512(r)
		case kind == CRC32:
			crcMSBCopyAVX512(r)
		case !copies:
			crcAVX512(r)
		default:
			crcCopyAVX512(r)
		}
		return
	}
	wide, swaps := tier == cpu.VAES || tier == cpu.AVX512, kind == T10 || kind == CRC32
	switch {
	case kind == CSUM && !copies:
		csumAVX2(r)
	case kind == CSUM:
		csumCopyAVX2(r)
	case wide && swaps && !copies:
		crcSwapVAES(r)
	case wide && swaps:
		crcSwapCopyVAES(r)
	case wide && !copies:
		crcVAES(r)
	case wide:
		crcCopyVAES(r)
	case swaps && !copies:
		crcSwapAVX2(r)
	case swaps:
		crcSwapCopyAVX2(r)
	case !copies:
		crcAVX2(r)
	default:
		crcCopyAVX2(r)
	}
}
