//go:build !purego

package cpu

import "golang.org/x/sys/cpu"

func detect() []Tier {
	a := cpu.ARM64
	if a.HasASIMD && a.HasPMULL && a.HasAES && a.HasCRC32 {
		return []Tier{NEON}
	}
	return nil
}
