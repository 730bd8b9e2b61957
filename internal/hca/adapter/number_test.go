package adapter

import (
	"sync/atomic"
	"testing"
)

// Numbers begin again after 2^24. Objects that still exist keep theirs, and none has number 0.
func TestNewNumber(t *testing.T) {
	c, table := &Context{}, map[uint32]bool{1: true, 2: true, 4: true}
	var next atomic.Uint32
	next.Store(0xfffffe)
	for _, want := range []uint32{0xffffff, 3, 5} {
		if n := newNumber(c, &next, table); n != want {
			t.Errorf("number %#x, want %#x", n, want)
		}
	}
}
