// Package icrc computes Ethernet's CRC-32, which RoCEv2 uses as its invariant CRC, at the
// speed of a copy. It takes and returns the same values as hash/crc32, but also uses
// 256-bit and 512-bit registers.
package icrc

import (
	"encoding/binary"
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

// generic is the portable implementation. It also handles all short packets. hash/crc32 takes
// the last 15 bytes one by one, which is longer than the 80 bytes before them of a WRITE of 64 bytes.
func generic(crc uint32, p []byte) uint32 {
	if n := len(p) &^ 15; n >= fast {
		crc = crc32.Update(crc, crc32.IEEETable, p[:n])
		p = p[n:]
	}
	return ^rest(^crc, p)
}

// fast is the length from which hash/crc32 uses instructions of the processor.
const fast = 64

// rest adds a few bytes to the register, which is the complement of a CRC, four at a time.
func rest(register uint32, p []byte) uint32 {
	for ; len(p) >= 4; p = p[4:] {
		r := register ^ binary.LittleEndian.Uint32(p)
		register = tables[3][r&0xff] ^ tables[2][r>>8&0xff] ^ tables[1][r>>16&0xff] ^ tables[0][r>>24]
	}
	for _, b := range p {
		register = tables[0][byte(register)^b] ^ register>>8
	}
	return register
}

// tables[i] holds the register after each byte and i bytes of zero.
var tables = func() (t [4]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := 1; i < len(t); i++ {
		for b, r := range t[i-1] {
			t[i][b] = t[0][byte(r)] ^ r>>8
		}
	}
	return t
}()
