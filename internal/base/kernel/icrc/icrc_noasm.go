//go:build purego || !amd64

package icrc

import "github.com/softmkey/softmkey/internal/base/cpu"

func update(_ cpu.Tier, crc uint32, p []byte) uint32 { return generic(crc, p) }

func copyUpdate(_ cpu.Tier, crc uint32, head, dst, p, still []byte) uint32 {
	copy(dst, p)
	return generic(generic(crc, head), still)
}
