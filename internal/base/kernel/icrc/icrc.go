// Package icrc computes Ethernet's CRC-32, which RoCEv2 uses as its invariant CRC, at
// the speed of a copy. It goes on where hash/crc32 is limited to 128-bit registers
// and takes and gives the same values.
package icrc

import (
	"hash/crc32"

	"github.com/softmkey/softmkey/internal/base/cpu"
)

// Update adds p to crc, as crc32.Update does with the table of the IEEE polynomial.
func Update(crc uint32, p []byte) uint32 { return update(cpu.Best(), crc, p) }

// Copy goes on as Update does over head and then p, which it copies to dst. That is as
// long as p and does not overlap it. Still is one of the two: that which nobody else
// writes to. Where it takes a pass of its own, the CRC is of that.
func Copy(crc uint32, head, dst, p, still []byte) uint32 {
	return copyUpdate(cpu.Best(), crc, head, dst, p, still)
}

// generic is the plain twin, and the path of all short packets.
func generic(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, p) }
