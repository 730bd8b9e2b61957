//go:build purego || (!amd64 && !arm64)

package aesxts

import "github.com/softmkey/softmkey/internal/base/cpu"

func hasTier(cpu.Tier) bool                    { return false }
func expand(cpu.Tier, *schedule, []byte)       { panic("aesxts: no assembly in this build") }
func cryptRun(cpu.Tier, *schedule, bool, *run) { panic("aesxts: no assembly in this build") }
