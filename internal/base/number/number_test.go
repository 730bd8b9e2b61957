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
