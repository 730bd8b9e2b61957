// Package flags names the bits of sets of flags.
package flags

import (
	"fmt"
	"strings"
)

// Names are the names of the bits of a set of flags, by their position.
type Names []string

// Join returns the names of the set bits, joined by "|". Bits without a name
// are added as one hexadecimal number. If no bit is set, Join returns "0".
func (n Names) Join(bits uint32) string {
	if bits == 0 {
		return "0"
	}
	var s []string
	for i, name := range n {
		if bit := uint32(1) << i; bits&bit != 0 && name != "" {
			s = append(s, name)
			bits &^= bit
		}
	}
	if bits != 0 {
		s = append(s, fmt.Sprintf("%#x", bits))
	}
	return strings.Join(s, "|")
}
