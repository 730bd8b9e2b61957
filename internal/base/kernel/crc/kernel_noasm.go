//go:build (!amd64 && !arm64) || purego

package crc

import "github.com/softmkey/softmkey/internal/base/cpu"

// tables is empty: without assembly the only tier is the generic one, and nothing
// below is reached.
type tables struct{}

func tablesFor(cpu.Tier, Kind, int, bool) tables { return tables{} }

func runTier(p *Plan, want []uint64, j *Job, m mode) uint64 { return runGeneric(p, want, j, m) }
