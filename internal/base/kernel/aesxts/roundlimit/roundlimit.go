// Package roundlimit runs AES's round instructions alone: no data, no tweaks. How
// fast that goes is the limit for any AES mode on the machine, and what the
// benchmarks of XTS are put beside. It is imported by benchmarks only.
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
