package peer

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestPattern compares with the first outputs of splitmix64 from seed 0, as the
// generator's author publishes them, and reads the pattern from every offset.
func TestPattern(t *testing.T) {
	want, err := hex.DecodeString("afcd1d7b39a820e2" + "d1caf465a6ae9e6e" + "4f63e0aa91f9c406")
	if err != nil {
		t.Fatal(err)
	}
	for pos := range want {
		got := make([]byte, len(want)-pos)
		Pattern(got, 0, uint64(pos))
		if !bytes.Equal(got, want[pos:]) {
			t.Fatalf("from %d: %x, want %x", pos, got, want[pos:])
		}
	}
}
