//go:build !purego

package crc

import (
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

func zen5Set(cpu.Tier) (exists, prefer bool) { return }

func methodFor(_ cpu.Tier, kind Kind) method {
	if kind == CSUM {
		return bySums
	}
	return byProducts
}

func linesFor(cpu.Tier, Kind, int) unsafe.Pointer { return nil }

//go:noescape
func crcNEON(r *run)

//go:noescape
func crcCopyNEON(r *run)

//go:noescape
func crcMSBNEON(r *run)

//go:noescape
func crcMSBCopyNEON(r *run)

//go:noescape
func crc32cNEON(r *run)

//go:noescape
func crc32cCopyNEON(r *run)

//go:noescape
func crc32NEON(r *run)

//go:noescape
func crc32CopyNEON(r *run)

//go:noescape
func csumNEON(r *run)

//go:noescape
func csumCopyNEON(r *run)

// kernel calls the assembly. The calls are direct, because a call through a variable
// would move the run to the heap.
func kernel(p *Plan, copies bool, r *run) {
	switch kind := p.kind; {
	case kind == T10 && copies:
		crcMSBCopyNEON(r)
	case kind == T10:
		crcMSBNEON(r)
	case kind == CSUM && copies:
		csumCopyNEON(r)
	case kind == CSUM:
		csumNEON(r)
	case kind == CRC32 && copies:
		crc32CopyNEON(r)
	case kind == CRC32:
		crc32NEON(r)
	case kind == CRC32C && copies:
		crc32cCopyNEON(r)
	case kind == CRC32C:
		crc32cNEON(r)
	case copies:
		crcCopyNEON(r)
	default:
		crcNEON(r)
	}
}
