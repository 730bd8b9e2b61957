//go:build !purego

package crc

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:noescape
func csumNEON(r *run)

//go:noescape
func csumCopyNEON(r *run)

//go:noescape
func crcMSBNEON(r *run)

//go:noescape
func crcMSBCopyNEON(r *run)

//go:noescape
func crc32NEON(r *run)

//go:noescape
func crc32CopyNEON(r *run)

//go:noescape
func crc32cNEON(r *run)

//go:noescape
func crc32cCopyNEON(r *run)

//go:noescape
func crcNEON(r *run)

//go:noescape
func crcCopyNEON(r *run)

// kernel calls the assembly. The calls are direct, because a call through a variable
// would move the run to the heap.
func kernel(_ cpu.Tier, m method, copies bool, r *run) {
	switch {
	case m == bySums && copies:
		csumCopyNEON(r)
	case m == bySums:
		csumNEON(r)
	case m == byReversal && copies:
		crcMSBCopyNEON(r)
	case m == byReversal:
		crcMSBNEON(r)
	case m == byCRC32 && copies:
		crc32CopyNEON(r)
	case m == byCRC32:
		crc32NEON(r)
	case m == byCRC32C && copies:
		crc32cCopyNEON(r)
	case m == byCRC32C:
		crc32cNEON(r)
	case copies:
		crcCopyNEON(r)
	default:
		crcNEON(r)
	}
}
