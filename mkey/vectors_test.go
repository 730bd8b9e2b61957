package mkey_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// TestHardwareVectors transfers data with fields from a ConnectX through keys, in both
// directions: memory without fields and a wire with them, and the reverse.
func TestHardwareVectors(t *testing.T) {
	for _, v := range []struct {
		format sig.Format
		block  []byte
		field  string
	}{
		{sig.Format{Type: sig.T10DIF, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A}, bytes.Repeat([]byte{0xA5}, 512), "ec7d5678f0debc9a"},
		{sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 0xF0DEBC9A}, bytes.Repeat([]byte{0xA5}, 512), "9ec65678f0debc9a"},
		{sig.Format{Type: sig.CRC32, Seed: sig.SeedZeros}, bytes.Repeat([]byte{1}, 512), "15d286f7"},
		{sig.Format{Type: sig.CRC32C, BlockSize: 4096}, bytes.Repeat([]byte{'a'}, 4096), "a24cc726"},
	} {
		t.Run(fmt.Sprint(v.format), func(t *testing.T) {
			field := must(hex.DecodeString(v.field))
			signed := append(bytes.Clone(v.block), field...)
			wire := &mkey.Signature{Wire: &v.format}
			memory := &mkey.Signature{Memory: &v.format}
			for _, d := range []struct {
				s       *mkey.Signature
				in, out []byte
			}{{wire, v.block, signed}, {memory, signed, v.block}} {
				mem := bytes.Clone(d.in)
				k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Signature: d.s})
				equal(t, "TX", send(t, k, 0, uint64(len(d.out))), d.out)
				clear(mem)
				receive(t, k, 0, d.out)
				equal(t, "RX", mem, d.in)
				sound(t, k, "TX and RX")
			}
		})
	}
}

// TestUnsetField follows rdma-core's tests/test_mlx5_mkey.py (reg_mr_sig_err):
// 516 bytes of memory with CRC32, whose field nobody has set, are sent as 512
// bytes. The key of the sender must report the error.
func TestUnsetField(t *testing.T) {
	mem := bytes.Repeat([]byte{'c'}, 516)
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Signature: &mkey.Signature{Memory: crc32, CheckMask: new(sig.MaskAll)}})
	equal(t, "sent", send(t, k, 0, 512), mem[:512])
	if bad := check(t, k); bad == nil || bad.Sig.Kind != sig.BadGuard || bad.Sig.Stored != 0x63636363 || bad.Domain != mkey.MemoryDomain {
		t.Errorf("%v", bad)
	}
	// A mask of 0 checks nothing: there is no
	// error (reg_mr_sig_pipelining_client).
	k = newKey(t, mkey.KeyConfig{Layout: over(mem), Signature: &mkey.Signature{Memory: crc32, CheckMask: new(sig.Mask)}})
	send(t, k, 0, 512)
	sound(t, k, "a mask of 0")
}
