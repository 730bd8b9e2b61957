package peer

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestPattern compares the pattern with the published first outputs of splitmix64 for
// seed 0, and reads it from every offset.
func TestPattern(t *testing.T) {
	var want []byte
	for _, word := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f} {
		want = binary.LittleEndian.AppendUint64(want, word)
	}
	for pos := range want {
		got := make([]byte, len(want)-pos)
		Pattern(got, 0, uint64(pos))
		if !bytes.Equal(got, want[pos:]) {
			t.Fatalf("from %d: %x, want %x", pos, got, want[pos:])
		}
	}
}
