package roce

import "github.com/softmkey/softmkey/internal/roce/internal/loss"

// psnMask masks the 24 bits of a packet sequence number or QP number.
const psnMask = loss.Mask

// psnAdd returns the PSN n packets after p; n may be negative.
func psnAdd(p uint32, n int) uint32 { return (p + uint32(n)) & psnMask }

// psnDiff returns a - b in circular 24-bit arithmetic.
func psnDiff(a, b uint32) int { return loss.Diff(a, b) }

// raise moves a PSN up to another one, if it is before that.
func raise(psn *uint32, to uint32) {
	if psnDiff(*psn, to) < 0 {
		*psn = to
	}
}
