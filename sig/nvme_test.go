package sig_test

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/base/kernel/ref"
	"github.com/softmkey/softmkey/sig"
)

// Every vector is one block with its metadata. The test also repeats it in runs, as TestVectors
// does.
func TestNVMeVectors(t *testing.T) {
	for _, v := range vectors(t, "sig-nvme.txt") {
		t.Run(v.name, func(t *testing.T) {
			for _, n := range []int{1, 7, 17} {
				f := v.f
				f.Flags |= sig.AppEscape // without remapping: every block of the run has the tag of the vector
				want := bytes.Repeat(append(bytes.Clone(v.data), v.field...), n)
				got := bytes.Clone(want)
				at, width := 0, 8
				if f.Type != sig.NVMe16 {
					width = 16
				}
				if !f.FieldFirst {
					at = f.FieldSize() - width
				}
				for i := range n {
					clear(got[i*f.Stride()+f.Block()+at:][:width])
				}
				noErr(t, f.Generate(got))
				if !bytes.Equal(got, want) {
					t.Fatalf("%d blocks: metadata % x, want % x", n, got[len(v.data):][:len(v.field)], v.field)
				}
				noErr(t, f.Verify(want))
			}
		})
	}
}

// nvmeStream computes a stream of an NVMe format bit by bit. metadata is what each block has beside
// its field.
func nvmeStream(f sig.Format, data, metadata []byte) (stream []byte) {
	width, both := 16, 80
	switch f.Type {
	case sig.NVMe16:
		width, both = 8, 32
	case sig.NVMe64:
		both = 48
	}
	storage := f.StorageBits
	if f.Type == sig.NVMe32 && storage == 0 {
		storage = 16
	}
	for i := 0; len(data) >= f.Block(); i++ {
		block := data[:f.Block()]
		data = data[f.Block():]
		covered := block
		if !f.FieldFirst {
			covered = append(bytes.Clone(block), metadata...)
		}
		tag := new(big.Int).SetUint64(f.RefTag)
		if f.Remaps() {
			tag.Add(tag, big.NewInt(int64(i)))
		}
		space := new(big.Int).Lsh(big.NewInt(1), uint(both-storage))
		tag.Mod(tag, space)
		tag.Add(tag, space.Mul(space, new(big.Int).SetUint64(f.StorageTag)))
		var field []byte
		switch f.Type {
		case sig.NVMe16:
			field = binary.BigEndian.AppendUint16(nil, ref.T10DIF(0, covered))
		case sig.NVMe32:
			field = binary.BigEndian.AppendUint32(nil, ref.CRC32C(0xFFFFFFFF, covered))
		default:
			field = binary.BigEndian.AppendUint64(nil, ref.CRC64(0xFFFFFFFFFFFFFFFF, covered))
		}
		field = binary.BigEndian.AppendUint16(field, f.AppTag)
		field = append(field, tag.FillBytes(make([]byte, both/8))...)
		if len(field) != width {
			panic("a field of the wrong size")
		}
		stream = append(stream, block...)
		if f.FieldFirst {
			stream = append(append(stream, field...), metadata...)
		} else {
			stream = append(append(stream, metadata...), field...)
		}
	}
	return append(stream, data...)
}

func randomNVMe(r *rand.Rand, size int) sig.Format {
	f := sig.Format{Type: sig.NVMe16 + sig.Type(r.IntN(3)), BlockSize: size, AppTag: uint16(r.Uint32()), FieldFirst: r.IntN(2) == 0}
	width, least, most, both := 16, 0, 48, 48
	switch f.Type {
	case sig.NVMe16:
		width, most, both = 8, 32, 32
	case sig.NVMe32:
		least, most, both = 16, 64, 80
	}
	f.Metadata = pick(r, 0, width, width+8, 64, 128)
	f.StorageBits = pick(r, least, most, least+r.IntN(most-least+1))
	f.StorageTag = r.Uint64() >> (64 - f.StorageBits) // a shift by 64 gives 0
	f.RefTag = pick(r, 0, ^uint64(0), r.Uint64()) >> (64 - (both - f.StorageBits))
	f.Flags = pick(r, 0, sig.Plain, sig.AppRefEscape, sig.RefRemap)
	return f
}

func TestNVMe(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 64))
	for range 300 {
		f := randomNVMe(r, pick(r, 8, 512, 520, 4096))
		again, err := sig.ParseFormat(f.String())
		if err != nil || again.String() != f.String() {
			t.Fatalf("%v: %v, %v", f, again, err)
		}
		n := pick(r, 1, 5, 16, 40)
		data := make([]byte, n*f.Block()+pick(r, 0, f.Block()/2))
		fill(r, data)
		width := 16
		if f.Type == sig.NVMe16 {
			width = 8
		}
		metadata := make([]byte, f.FieldSize()-width)
		want := nvmeStream(f, data, metadata)
		got := bytes.Repeat([]byte{0xEE}, len(want))
		if _, err := f.Protect(got, data); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: protect: %v, or bytes differ", f, err)
		}

		// With metadata of the caller's.
		fill(r, metadata)
		want = nvmeStream(f, data, metadata)
		got = nvmeStream(sig.Format{Type: f.Type, BlockSize: f.BlockSize, Metadata: f.Metadata, FieldFirst: f.FieldFirst}, data, metadata)
		if err := f.Generate(got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v: generate: %v, or bytes differ", f, err)
		}
		plain := make([]byte, len(data))
		if _, err := f.Strip(plain, want); err != nil || !bytes.Equal(plain, data) {
			t.Fatalf("%v: strip: %v", f, err)
		}

		// A conversion is what Strip and Protect give; beside the field between equal places the
		// metadata is kept.
		to := randomNVMe(r, pick(r, f.BlockSize, 512))
		if r.IntN(3) == 0 {
			to = randomFormat(r, pick(r, sig.T10DIF, sig.CRC32, sig.CRC32C, sig.CRC64), pick(r, f.BlockSize, 4096))
		} else if r.IntN(2) == 0 {
			to.Type, to.BlockSize, to.Metadata, to.FieldFirst, to.StorageBits, to.StorageTag, to.RefTag = f.Type, f.BlockSize, f.Metadata, f.FieldFirst, f.StorageBits, 0, f.RefTag
		}
		converted := make([]byte, to.StreamLen(int64(len(data))))
		expected := make([]byte, len(converted))
		must(to.Protect(expected, data))
		kept := to.Type == f.Type && to.BlockSize == f.BlockSize && to.FieldSize() == f.FieldSize() && to.FieldFirst == f.FieldFirst
		if kept {
			expected = nvmeStream(to, data, metadata)
		}
		if _, err := f.Convert(to, converted, want); err != nil || !bytes.Equal(converted, expected) {
			t.Fatalf("%v to %v: %v, or bytes differ", f, to, err)
		}
		if _, err := to.Convert(f, got, converted); err != nil {
			t.Fatalf("%v to %v: %v", to, f, err)
		}
		if !kept {
			expected = nvmeStream(f, data, make([]byte, len(metadata)))
		} else {
			expected = want
		}
		if !bytes.Equal(got, expected) {
			t.Fatalf("%v to %v: bytes differ", to, f)
		}
		flipped(t, r, f, want)
	}
}

// flipped flips one bit of a stream and expects the error that belongs to its place.
func flipped(t *testing.T, r *rand.Rand, f sig.Format, stream []byte) {
	t.Helper()
	blocks := len(stream) / f.Stride()
	block := r.IntN(blocks)
	bit := r.IntN(f.Stride() * 8)
	stream = bytes.Clone(stream)
	stream[block*f.Stride()+bit/8] ^= 0x80 >> (bit % 8)

	width, guard := 16, 64
	switch f.Type {
	case sig.NVMe16:
		width, guard = 8, 16
	case sig.NVMe32:
		guard = 32
	}
	at := f.Block() * 8
	if !f.FieldFirst {
		at = (f.Stride() - width) * 8
	}
	storage, _ := f.TagBits()
	var want sig.Kind
	switch {
	case bit >= at+width*8: // after a field in the first bytes: nothing covers it
	case bit < at+guard:
		want = sig.BadGuard
	case bit < at+guard+16:
		want = sig.BadAppTag
	case bit < at+guard+16+storage:
		want = sig.BadStorageTag
	default:
		want = sig.BadRefTag
	}
	stored := f.Field(stream[block*f.Stride()+f.Block():][:f.FieldSize()])
	if f.Escapes(stored) {
		want = 0
	}
	var bad []sig.Error
	noErr(t, f.VerifyEach(stream, func(e sig.Error) bool { bad = append(bad, e); return true }))
	if want == 0 {
		if len(bad) != 0 {
			t.Fatalf("%v: bit %d: %v", f, bit, bad)
		}
		return
	}
	if len(bad) != 1 || bad[0].Kind != want || bad[0].Block != uint64(block) || bad[0].Offset != uint64(block*f.Stride()) || bad[0].Stored == bad[0].Computed {
		t.Fatalf("%v: bit %d of block %d: %v, want %v", f, bit, block, bad, want)
	}
	f.Flags |= sig.IgnoreStorage
	if err := f.Verify(stream); (err == nil) != (want == sig.BadStorageTag) {
		t.Fatalf("%v: bit %d: %v", f, bit, err)
	}
}

// TestNVMeEscapes: an application tag of ones exempts a block, for type 3 only beside a reference tag
// of ones, whatever the storage tag.
func TestNVMeEscapes(t *testing.T) {
	for _, typ := range []sig.Type{sig.NVMe16, sig.NVMe32, sig.NVMe64} {
		for _, flags := range []sig.Flags{sig.Type1, sig.Type3, sig.Plain} {
			f := sig.Format{Type: typ, StorageBits: 24, Flags: flags}
			for _, ones := range []bool{false, true} {
				_, bits := f.TagBits()
				stored := f
				stored.AppTag, stored.StorageTag, stored.RefTag = 0xFFFF, 0xABCDEF, 1<<bits-1
				if !ones {
					stored.RefTag--
				}
				stream := make([]byte, f.Stride())
				noErr(t, stored.Generate(stream))
				stream[0] ^= 1
				err := f.Verify(stream)
				if escaped := flags == sig.Type1 || flags == sig.Type3 && ones; (err == nil) != escaped {
					t.Errorf("%v, all ones %t: %v", f, ones, err)
				}
			}
		}
	}
}

// TestNVMeSeparate: fields in a buffer of their own, as NVMe's separate metadata is.
func TestNVMeSeparate(t *testing.T) {
	f := sig.Format{Type: sig.NVMe64, BlockSize: 4096, Metadata: 64, AppTag: 3}
	data := make([]byte, 20*4096)
	rand.NewChaCha8([32]byte{64}).Read(data)
	fields := make([]byte, 20*64)
	rand.NewChaCha8([32]byte{32}).Read(fields)
	b := sig.Separate(f, data, fields)
	noErr(t, must(sig.NewTransform(sig.TransformConfig{Out: f})).Run(b, b, 20, 0, nil))
	var stream []byte
	for i := range 20 {
		stream = append(append(stream, data[i*4096:][:4096]...), fields[i*64:][:64]...)
	}
	noErr(t, f.Verify(stream))
}
