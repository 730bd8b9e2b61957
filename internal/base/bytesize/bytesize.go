// Package bytesize parses numbers of bytes such as 4k or 0x200. Package sig uses it for block
// sizes, and the command line for all sizes, so that both have the same syntax.
package bytesize

import (
	"math/bits"
	"strconv"
	"strings"
)

// Syntax describes the texts that [Parse] reads, for error messages.
const Syntax = "a number of bytes, in decimal or in hexadecimal after 0x, with K, M, G or T for powers of 1024"

// Parse returns the number of bytes that a text such as "512", "0x200", "4k", "4K" or "4KiB"
// means, and whether the text means one that fits 64 bits.
func Parse(s string) (n uint64, ok bool) {
	base, digits := 10, s
	if len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X") {
		base, digits = 16, s[2:]
	}
	if d, found := strings.CutSuffix(digits, "iB"); found {
		if digits = d; !strings.ContainsAny(digits, "kKmMgGtT") {
			return 0, false
		}
	}
	shift := 0
	if last := len(digits) - 1; last > 0 {
		if i := strings.IndexByte("KMGT", digits[last]&^0x20); i >= 0 {
			digits, shift = digits[:last], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil || bits.Len64(n)+shift > 64 {
		return 0, false
	}
	return n << shift, true
}
