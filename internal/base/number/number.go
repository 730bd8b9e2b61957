// Package number reads the numbers that people write, and gives numbers to objects that are found by them.
package number

import (
	"strconv"
	"strings"
	"sync/atomic"
)

// Parse reads a number of up to bits bits: decimal, also with zeros in front, or hexadecimal after 0x. Other
// bases of Go, such as octal, are not read, because nobody means them by a leading zero. The errors are those of
// strconv.ParseUint.
func Parse(s string, bits int) (uint64, error) {
	if digits, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		return strconv.ParseUint(digits, 16, bits)
	}
	return strconv.ParseUint(s, 10, bits)
}

// most is the largest number of a Range that does not say another one: numbers have 24 bits in the
// adapter's formats.
const most = 1<<24 - 1

// Range hands out numbers one after another and begins again after the last, so that the number of an
// object that has gone is not used again soon. The zero value hands out 1 to 2^24-1. A Range may be
// used by several goroutines at once.
type Range struct {
	first, last uint32 // last 0: 1 to most
	given       atomic.Uint32
}

// From returns a Range of the numbers first to last.
func From(first, last uint32) *Range { return &Range{first: first, last: last} }

// Next returns the next number of the range that no object of a table has, or 0 if all are used. The
// table has no objects outside of the range.
func Next[T any](r *Range, table map[uint32]T) uint32 {
	first, last := r.first, r.last
	if last == 0 {
		first, last = 1, most
	}
	for count := last - first + 1; uint64(len(table)) < uint64(count); {
		n := first + (r.given.Add(1)-1)%count
		if _, used := table[n]; !used {
			return n
		}
	}
	return 0
}
