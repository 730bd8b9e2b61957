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
	switch p.kind {
	case T10:
		if copies {
			crcMSBCopyNEON(r)
		} else {
			crcMSBNEON(r)
		}
	case CSUM:
		if copies {
			csumCopyNEON(r)
		} else {
			csumNEON(r)
		}
	case CRC32:
		if copies {
			crc32CopyNEON(r)
		} else {
			crc32NEON(r)
		}
	case CRC32C:
		if copies {
			crc32cCopyNEON(r)
		} else {
			crc32cNEON(r)
		}
	case CRC64:
		if copies {
			crcCopyNEON(r)
		} else {
			crcNEON(r)
		}
	}
}
