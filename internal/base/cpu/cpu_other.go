//go:build purego || (!amd64 && !arm64)

package cpu

func detect() []Tier { return nil }
