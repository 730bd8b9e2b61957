package engine

import (
	"bytes"
	"encoding/hex"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// Tests is the result of the known-answer tests that a device runs when it is opened.
// An algorithm that failed cannot be used.
type Tests struct {
	Signatures []sig.Type // types that failed
	XTS        bool       // AES-XTS failed
}

// Failed reports whether a type of signature failed.
func (t *Tests) Failed(s sig.Type) bool { return slices.Contains(t.Signatures, s) }

// refuse returns why a configuration cannot be used, if a test failed.
func (t *Tests) refuse(c *Configuration) error {
	if s := c.Signature; s != nil {
		for _, f := range []*sig.Format{s.Memory, s.Wire} {
			if f != nil && t.Failed(f.Type) {
				return failure.New("mkey configure", syscall.EOPNOTSUPP, "%v failed its known-answer test", f.Type)
			}
		}
	}
	if c.Crypto != nil && t.XTS {
		return failure.New("mkey configure", syscall.EOPNOTSUPP, "AES-XTS failed its known-answer test")
	}
	return nil
}

// selfTest runs the known-answer tests: fields that hardware has computed, the
// check value of the CRC64, and a vector of IEEE Std 1619-2007.
func selfTest() (r Tests) {
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
			r.Signatures = append(r.Signatures, v.format.Type)
		}
	}
	r.Signatures = slices.Compact(r.Signatures)
	r.XTS = !xtsTest()
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
