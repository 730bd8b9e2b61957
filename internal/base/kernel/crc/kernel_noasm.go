//go:build (!amd64 && !arm64) || purego

package crc

// tables is empty, because the generic tier is the only one without assembly. The
// functions below are never called.
type tables struct{}

func tablesFor(*Plan, bool) tables { return tables{} }

func runTier(p *Plan, want []uint64, j *Job, m mode) uint64 { return runGeneric(p, want, j, m) }
