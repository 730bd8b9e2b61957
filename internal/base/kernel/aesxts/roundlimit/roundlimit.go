// Package roundlimit executes AES's round instructions alone, without data and tweaks.
// Their speed is the upper limit of any AES mode on the machine, and the benchmarks of
// XTS print it next to their own. Only benchmarks import the package.
package roundlimit

import "github.com/softmkey/softmkey/internal/base/cpu"

// Run executes the rounds of n blocks, rounded up to whole iterations of at most 64 blocks,
// as the given tier does for a key of keyBits bits, 128 or 256. It returns false if there is
// no loop for them.
func Run(t cpu.Tier, keyBits int, decrypt bool, n int) bool {
	loop, blocks := find(t, keyBits, decrypt)
	if loop == nil {
		return false
	}
	loop(uint64(n+blocks-1) / uint64(blocks))
	return true
}
