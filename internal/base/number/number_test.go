package number

import (
	"maps"
	"slices"
	"testing"
)

// TestNext takes numbers until none is left. Objects that exist keep theirs, none has number 0, and the
// number of an object that has gone is used again last.
func TestNext(t *testing.T) {
	var r Range
	r.given.Store(most - 2)
	table := map[uint32]bool{1: true, 2: true, 4: true}
	for _, want := range []uint32{most - 1, most, 3, 5} {
		if n := Next(&r, table); n != want {
			t.Errorf("number %#x, want %#x", n, want)
		}
	}
	small, table := From(7, 9), map[uint32]bool{8: true}
	for _, want := range []uint32{7, 9, 0} {
		n := Next(small, table)
		if n != want {
			t.Errorf("number %d, want %d", n, want)
		}
		if n != 0 {
			table[n] = true
		}
	}
	if got := slices.Sorted(maps.Keys(table)); !slices.Equal(got, []uint32{7, 8, 9}) {
		t.Errorf("numbers %v", got)
	}
}

// Only decimal and hexadecimal numbers are read, and a leading zero changes nothing.
func TestParse(t *testing.T) {
	for s, want := range map[string]uint64{"0": 0, "10": 10, "010": 10, "0x10": 16, "0XfF": 255, "65535": 65535} {
		if n, err := Parse(s, 16); n != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", s, n, err, want)
		}
	}
	for _, s := range []string{"", "0x", "x10", "0b11", "0o7", "1_0", "0x1_0", "-1", "+1", "0x-1", "65536", "0x10000", " 1"} {
		if n, err := Parse(s, 16); err == nil {
			t.Errorf("%q is read as %d", s, n)
		}
	}
}
