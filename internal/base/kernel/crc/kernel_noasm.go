//go:build (!amd64 && !arm64) || purego

package crc

import "github.com/softmkey/softmkey/internal/base/cpu"

// tables is empty, because the generic tier is the only one without assembly. The
// functions below, but for zen5Set, are never called.
type tables struct{}

func tablesFor(*Plan, bool) (t, maps tables) { return }

func zen5Set(cpu.Tier) (exists, prefer bool) { return }

func runTier(p *Plan, want []uint64, j *Job, m mode) uint64 { return runGeneric(p, want, j, m) }
