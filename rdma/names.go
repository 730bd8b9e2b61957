package rdma

import (
	"fmt"
	"strings"
)

// names are the names of the bits of a set of flags, by their position.
type names []string

// join returns the names of the bits that are set, joined by "|": "0" without a bit,
// and bits without a name as a hexadecimal number.
func (n names) join(bits uint32) string {
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
