//go:build purego || !amd64

package roundlimit

import "github.com/softmkey/softmkey/internal/base/cpu"

func find(cpu.Tier, int, bool) (loop func(n uint64), blocks int) { return nil, 0 }
