package isal_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/minio/crc64nvme"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/sig"
)

// field computes the field of one block with other implementations.
func field(f sig.Format, block []byte, i int) []byte {
	b := make([]byte, f.FieldSize())
	ones := f.Seed == sig.SeedOnes
	switch f.Type {
	case sig.T10DIF:
		var seed uint16
		if ones {
			seed = 0xFFFF
		}
		guard := isal.CRC16T10DIF(seed, block)
		if f.Guard == sig.GuardCSUM {
			guard = ^checksum.Checksum(block, seed)
		}
		binary.BigEndian.PutUint16(b, guard)
		binary.BigEndian.PutUint16(b[2:], f.AppTag)
		binary.BigEndian.PutUint32(b[4:], uint32(f.RefTag)+uint32(i))
	case sig.CRC32:
		seed := uint32(0xFFFFFFFF) // the function inverts it
		if ones {
			seed = 0
		}
		binary.BigEndian.PutUint32(b, isal.CRC32IEEE(seed, block))
	case sig.CRC32C:
		var seed uint32
		if ones {
			seed = 0xFFFFFFFF
		}
		binary.LittleEndian.PutUint32(b, ^isal.CRC32ISCSI(seed, block))
	case sig.CRC64:
		// The library's register starts with ones. The difference to a register
		// that starts with zero is the sum of a message of zeros of the same
		// length, which depends on the ones alone.
		crc := crc64nvme.Checksum(block)
		if !ones {
			crc ^= ^crc64nvme.Checksum(make([]byte, len(block)))
		}
		binary.LittleEndian.PutUint64(b, crc)
	}
	return b
}

// TestAgreement compares every signature with another implementation, on random data,
// lengths, seeds and tags: ISA-L for T10-DIF, CRC32 and CRC32C, minio/crc64nvme for
// CRC64, which ISA-L 2.30 does not have, and gVisor for the IP checksum.
func TestAgreement(t *testing.T) {
	const seed = 0x15a1
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sizes := sig.KeyBlockSizes()
	for range 4000 {
		f := sig.Format{
			Type:      sig.Type(1 + r.IntN(4)),
			BlockSize: 8 * (1 + r.IntN(100)),
			Seed:      sig.Seed(1 + r.IntN(2)),
		}
		switch r.IntN(8) {
		case 0:
			f.BlockSize = sizes[r.IntN(len(sizes))]
		case 1:
			f.BlockSize = 8 * (1 + r.IntN(2000))
		}
		if f.Type == sig.T10DIF {
			f.Guard = sig.Guard(r.IntN(2))
			f.AppTag = uint16(r.Uint32())
			f.RefTag = uint64(r.Uint32())
		}
		n := 1 + r.IntN(20)
		data := make([]byte, n*f.BlockSize)
		switch r.IntN(20) {
		case 0: // zeros
		case 1:
			for i := range data {
				data[i] = 0xFF
			}
		default:
			for i := range data {
				data[i] = byte(r.Uint32())
			}
		}
		got := make([]byte, n*f.Stride())
		if _, err := f.Protect(got, data); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			block := data[i*f.BlockSize:][:f.BlockSize]
			have := got[i*f.Stride()+f.BlockSize:][:f.FieldSize()]
			if want := field(f, block, i); string(have) != string(want) {
				t.Fatalf("%v, block %d of %d: field % x, want % x", f, i, n, have, want)
			}
		}
	}
}

// TestPeer checks that the peer's loops compute and check the fields correctly.
func TestPeer(t *testing.T) {
	for _, size := range []int{512, 4096} {
		const n = 9
		f := sig.Format{Type: sig.T10DIF, BlockSize: size, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xFFFFFFFE}
		d := isal.DIF{BlockSize: size, Seed: 0xFFFF, AppTag: f.AppTag, RefTag: uint32(f.RefTag)}
		data := make([]byte, n*size)
		for i := range data {
			data[i] = byte(i * 7)
		}
		stream, back := make([]byte, n*f.Stride()), make([]byte, len(data))
		d.Repeat(isal.OpGenerateCopy, stream, data, n, 1)
		fatal.If(t, f.Verify(stream))
		if got := d.Repeat(isal.OpVerifyCopy, back, stream, n, 1); got != n || string(back) != string(data) {
			t.Fatalf("bad block %d", got)
		}
		clear(stream[size:f.Stride()])
		if got := d.Repeat(isal.OpVerify, stream, stream, n, 1); got != 0 {
			t.Fatalf("bad block %d, want 0", got)
		}
		d.Repeat(isal.OpGenerate, stream, stream, n, 1)
		fatal.If(t, f.Verify(stream))
	}
}
