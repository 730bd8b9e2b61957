//go:build !purego

package crc

import "github.com/softmkey/softmkey/internal/base/cpu"

//go:noescape
func t10AVX512(r *run)

//go:noescape
func t10CopyAVX512(r *run)

//go:noescape
func csumAVX512(r *run)

//go:noescape
func csumCopyAVX512(r *run)

//go:noescape
func crcMSBAVX512(r *run)

//go:noescape
func crcMSBCopyAVX512(r *run)

//go:noescape
func crcAVX512(r *run)

//go:noescape
func crcCopyAVX512(r *run)

//go:noescape
func csumAVX2(r *run)

//go:noescape
func csumCopyAVX2(r *run)

//go:noescape
func crcSwapVAES(r *run)

//go:noescape
func crcSwapCopyVAES(r *run)

//go:noescape
func crcVAES(r *run)

//go:noescape
func crcCopyVAES(r *run)

//go:noescape
func crcSwapAVX2(r *run)

//go:noescape
func crcSwapCopyAVX2(r *run)

//go:noescape
func crcAVX2(r *run)

//go:noescape
func crcCopyAVX2(r *run)

// kernel calls the assembly. The calls are direct, because a call through a variable
// would move the run to the heap.
func kernel(tier cpu.Tier, m method, copies bool, r *run) {
	switch wide := tier == cpu.AVX512; {
	case wide && m == byMaps && copies:
		t10CopyAVX512(r)
	case wide && m == byMaps:
		t10AVX512(r)
	case wide && m == bySums && copies:
		csumCopyAVX512(r)
	case wide && m == bySums:
		csumAVX512(r)
	case wide && m == byReversal && copies:
		crcMSBCopyAVX512(r)
	case wide && m == byReversal:
		crcMSBAVX512(r)
	case wide && copies:
		crcCopyAVX512(r)
	case wide:
		crcAVX512(r)
	case m == bySums && copies:
		csumCopyAVX2(r)
	case m == bySums:
		csumAVX2(r)
	case tier == cpu.VAES && m == bySwaps && copies:
		crcSwapCopyVAES(r)
	case tier == cpu.VAES && m == bySwaps:
		crcSwapVAES(r)
	case tier == cpu.VAES && copies:
		crcCopyVAES(r)
	case tier == cpu.VAES:
		crcVAES(r)
	case m == bySwaps && copies:
		crcSwapCopyAVX2(r)
	case m == bySwaps:
		crcSwapAVX2(r)
	case copies:
		crcCopyAVX2(r)
	default:
		crcAVX2(r)
	}
}
