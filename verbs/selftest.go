package verbs

import (
	"bytes"
	"encoding/hex"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// testResults tells which known-answer tests failed when a device was opened.
type testResults struct {
	signatures []sig.Type
	xts        bool
}

func (t *testResults) failed(s sig.Type) bool { return slices.Contains(t.signatures, s) }

// refuse returns why signature attributes cannot be used, if a test failed.
func (t *testResults) refuse(s *Signature) error {
	for _, f := range []*sig.Format{s.Memory, s.Wire} {
		if f != nil && t.failed(f.Type) {
			return operr.New("mkey configure", syscall.EOPNOTSUPP, "%v failed its known-answer test", f.Type)
		}
	}
	return nil
}

// selfTest runs the known-answer tests: fields that hardware has computed, the
// check value of the CRC64, and a vector of IEEE Std 1619-2007.
func selfTest() (r testResults) {
	for _, v := range []struct {
		format sig.Format
		fill   byte
		field  string
	}{
		{sig.Format{Type: sig.T10DIF, BlockSize: 512, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A}, 0xA5, "ec7d5678f0debc9a"},
		{sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 0xF0DEBC9A}, 0xA5, "9ec65678f0debc9a"},
		{sig.Format{Type: sig.CRC32, BlockSize: 512, Seed: sig.SeedZeros}, 0x01, "15d286f7"},
		{sig.Format{Type: sig.CRC32C, BlockSize: 4096}, 'a', "a24cc726"},
		{sig.Format{Type: sig.CRC64, BlockSize: 4096}, 0x00, "4eb622eb67d38264"},
	} {
		in := bytes.Repeat([]byte{v.fill}, v.format.BlockSize)
		out := make([]byte, v.format.Stride())
		n, err := v.format.Protect(out, in)
		if err != nil || n != len(out) || hex.EncodeToString(out[len(in):]) != v.field {
			r.signatures = append(r.signatures, v.format.Type)
		}
	}
	r.signatures = slices.Compact(r.signatures)
	r.xts = !xtsTest()
	return r
}

// xtsTest encrypts vector 2 of IEEE Std 1619-2007, annex B, and back.
func xtsTest() bool {
	key := append(bytes.Repeat([]byte{0x11}, 16), bytes.Repeat([]byte{0x22}, 16)...)
	want := "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"
	c, err := xts.New(key)
	if err != nil {
		return false
	}
	plain := bytes.Repeat([]byte{0x44}, 32)
	got := make([]byte, 32)
	c.EncryptUnit(got, plain, xts.Tweak{Lo: 0x3333333333})
	ok := hex.EncodeToString(got) == want
	c.DecryptUnit(got, got, xts.Tweak{Lo: 0x3333333333})
	return ok && bytes.Equal(got, plain)
}
