// Package icrc computes Ethernet's CRC-32, which RoCEv2 uses as its invariant CRC, at the
// speed of a copy. It takes and returns the same values as hash/crc32, but also uses
// 256-bit and 512-bit registers.
package icrc

import (
	"hash/crc32"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Update adds p to crc, as crc32.Update does with the IEEE table.
func Update(crc uint32, p []byte) uint32 { return update(cpu.Best(), crc, p) }

// Copy adds head and p to crc and copies p to dst, which must be as long as p and must
// not overlap it. still must be p or dst, whichever no other goroutine writes to: an
// implementation that computes the CRC in a separate pass reads still.
func Copy(crc uint32, head, dst, p, still []byte) uint32 {
	return copyUpdate(cpu.Best(), crc, head, dst, p, still)
}

// generic is the portable implementation. It also handles all short packets.
func generic(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, p) }
