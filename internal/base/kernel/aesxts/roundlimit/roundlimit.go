// Package roundlimit runs AES's round instructions alone: no data, no tweaks. Their
// speed is the limit of any AES mode on the machine, and the benchmarks of XTS show it
// beside their own. Only benchmarks import the package.
package roundlimit

import "github.com/softmkey/softmkey/internal/base/cpu"

// Run does the rounds of n blocks, n rounded up to a multiple of 32, as the given
// tier would with the given key size in bits, 128 or 256. It reports false if
// there is no such loop.
func Run(t cpu.Tier, keyBits int, decrypt bool, n int) bool {
	loop, blocks := find(t, keyBits, decrypt)
	if loop == nil {
		return false
	}
	loop(uint64(n+blocks-1) / uint64(blocks))
	return true
}
