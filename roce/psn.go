package roce

// psnMask has the 24 bits of a packet sequence number, and of a QP number.
const psnMask = 1<<24 - 1

// psnAdd returns the PSN n packets after p; n may be negative.
func psnAdd(p uint32, n int) uint32 { return (p + uint32(n)) & psnMask }

// psnDiff returns how many packets a is after b, -2^23 to 2^23-1: PSNs are
// compared around the circle (section 9.7.2).
func psnDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
