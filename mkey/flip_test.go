package mkey_test

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/base/cpu"
	"github.com/softmkey/softmkey/internal/base/kernel/race"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// checked is one way in which a key checks a domain: a row of the table in
// mlx5dv_wr_set_mkey_crypto(3), or no crypto, and a direction.
type checked struct {
	row       string
	rx        bool // checks the wire domain instead of the memory domain
	other     bool // the other domain has a signature too
	encrypt   bool // encrypt_on_tx
	order     mkey.Order
	encrypted bool // the checked domain, including its fields, is encrypted
}

func ways() []checked {
	const after, before = mkey.SignatureAfterCrypto, mkey.SignatureBeforeCrypto
	return []checked{
		{row: "none/TX"}, {row: "none/RX", rx: true},
		{row: "none/TX both", other: true}, {row: "none/RX both", rx: true, other: true},
		{row: "B/RX", rx: true, encrypt: true, order: after},
		{row: "C/RX", rx: true, encrypt: true, order: before, encrypted: true},
		{row: "D/TX", encrypt: true, order: before},
		{row: "E/TX", encrypt: true, order: before, other: true},
		{row: "E/RX", rx: true, encrypt: true, order: before, other: true, encrypted: true},
		{row: "G/RX", rx: true, order: after},
		{row: "H/TX", order: after, encrypted: true},
		{row: "I/TX", order: after, other: true, encrypted: true},
		{row: "I/RX", rx: true, order: after, other: true},
		{row: "J/TX", order: before},
	}
}

// guards returns formats with every type, guard and seed.
func guards(size int) (fs []*sig.Format) {
	for _, seed := range []sig.Seed{sig.SeedZeros, sig.SeedOnes} {
		for _, guard := range []sig.Guard{sig.GuardCRC, sig.GuardCSUM} {
			fs = append(fs, &sig.Format{Type: sig.T10DIF, BlockSize: size, Guard: guard, Seed: seed, AppTag: 0x5678, RefTag: 0xF0DEBC9A})
		}
		for _, ty := range []sig.Type{sig.CRC32, sig.CRC32C, sig.CRC64} {
			fs = append(fs, &sig.Format{Type: ty, BlockSize: size, Seed: seed})
		}
	}
	return fs
}

// flipBlocks is a number of blocks for which AES-XTS can process the stream, with blocks
// of any size and fields of 4 or 8 bytes, in units of the block size: the last unit has
// 16 or 32 bytes.
const flipBlocks = 4

// flips holds the expected error for each single-bit flip in block 1 of a stream.
type flips struct {
	f      *sig.Format
	stream []byte // without errors
	want   []sig.Error
}

// newFlips includes every stride-th bit of the block's data and every bit of its field.
func newFlips(f *sig.Format, stride int) *flips {
	s := &flips{f: f, stream: mkeytest.Protect(f, pattern(flipBlocks*f.BlockSize))}
	s.want = make([]sig.Error, 8*f.Stride())
	s.each(stride, 1, func(i, pos, bit int) {
		s.want[i] = mkeytest.FlipBit(f, s.stream, pos, bit)
		s.stream[pos] ^= 1 << bit
	})
	return s
}

// each calls f for every stride-th bit of the data and every fieldStride-th bit of the field.
func (s *flips) each(stride, fieldStride int, f func(i, pos, bit int)) (n int) {
	field := 8 * s.f.BlockSize
	for i := 0; i < len(s.want); n++ {
		f(i, s.f.Stride()+i/8, i%8)
		if i < field {
			i = min(i+stride, field)
		} else {
			i += fieldStride
		}
	}
	return n
}

// slow limits the flips in rows with crypto, for machines without AES instructions and
// for the race detector.
var slow = race.Enabled || cpu.Best() == cpu.Generic

// TestSingleBitFlips flips single bits of a protected block, in its data and its field, for every
// type and every row that checks. Each flip must be reported with the right kind, block,
// offset and values.
func TestSingleBitFlips(t *testing.T) {
	count := 0
	for _, size := range sig.KeyBlockSizes() {
		if testing.Short() && (size == 4048 || size == 4096) {
			continue // 512, 520 and 4160 represent the other sizes
		}
		stride, fieldStride := 1, 1
		switch {
		case testing.Short():
			// For the race detector or an emulated machine. Every third bit reaches
			// every byte of a field, and every bit of a byte.
			stride, fieldStride = 599, 3
		case size != 512 && !long:
			stride = 61
		}
		for _, f := range guards(size) {
			s := newFlips(f, stride)
			for _, w := range ways() {
				t.Run(fmt.Sprint(f, "/", w.row), func(t *testing.T) {
					stride := stride
					if slow && !long && w.row[:4] != "none" {
						stride *= 31
					}
					count += s.run(t, w, stride, fieldStride)
				})
			}
		}
	}
	t.Logf("%d single-bit flips were found", count)
}

// run transfers the stream through a key, once for each flip.
func (s *flips) run(t *testing.T, w checked, stride, fieldStride int) int {
	attr := &mkey.Signature{}
	this, other := &attr.Memory, &attr.Wire
	domain := mkey.MemoryDomain
	if w.rx {
		this, other = other, this
		domain = mkey.WireDomain
	}
	*this = s.f
	if w.other {
		*other = &sig.Format{Type: sig.CRC32C, BlockSize: s.f.BlockSize}
	}
	cfg := mkey.KeyConfig{Access: rdma.LocalWrite, Signature: attr}
	if w.row[:4] != "none" {
		unit := s.f.BlockSize
		if w.encrypted && s.f.Stride() == 520 {
			unit = 520
		}
		cfg.Crypto = crypto(w.encrypt, w.order, unit)
	}
	stream := append([]byte(nil), s.stream...)
	memory := make([]byte, flipBlocks*s.f.BlockSize) // memory of the other domain
	if w.other {
		memory = make([]byte, flipBlocks*(*other).Stride())
	}
	buf := make([]byte, len(stream))
	if !w.rx {
		memory, buf = buf, memory
	}
	cfg.Layout = over(memory)
	k := newKey(t, cfg)

	pass := func() *mkey.BadBlock {
		in := stream
		if w.encrypted {
			in = memory
			if w.rx {
				in = buf
			}
			cipher.Encrypt(in, stream, cfg.Crypto.DataUnitSize, xts.Tweak{})
		} else if !w.rx {
			copy(memory, stream)
		}
		if w.rx {
			rx := must(k.NewWriter(0, int64(len(stream))))
			must(rx.Write(in))
			noErr(t, rx.Finish())
			rx.Close()
		} else {
			tx := must(k.NewReader(0, int64(len(buf))))
			must(tx.ReadAt(buf, 0))
			tx.Close()
		}
		return check(t, k)
	}
	if bad := pass(); bad != nil {
		t.Fatalf("sound: %v", bad)
	}
	return s.each(stride, fieldStride, func(i, pos, bit int) {
		stream[pos] ^= 1 << bit
		if bad := pass(); bad == nil || bad.Sig != s.want[i] || bad.Domain != domain {
			t.Errorf("bit %d of byte %d of the block: %v, want %+v", bit, i/8, bad, s.want[i])
		}
		stream[pos] ^= 1 << bit
	})
}

// TestFlipsUnderMasks checks that bytes of a field outside of the check mask are ignored:
// for flips in those bytes, and for flips in the data that affect only those bytes.
func TestFlipsUnderMasks(t *testing.T) {
	masks := []sig.Mask{0, 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01, sig.MaskGuard, sig.MaskApp, sig.MaskRef, sig.MaskApp | sig.MaskRef, 0xF0, 0xA5, 0xFF}
	found, passed := 0, 0
	stride := 1
	if testing.Short() {
		stride = 31 // for the race detector or an emulated machine; all bits of the field
	}
	for _, f := range guards(512) {
		s := newFlips(f, stride)
		for _, mask := range masks {
			memory := append([]byte(nil), s.stream...)
			k := newKey(t, mkey.KeyConfig{Layout: over(memory), Signature: masked(f, mask)})
			wire := make([]byte, flipBlocks*512)
			s.each(stride, 1, func(i, pos, bit int) {
				memory[pos] ^= 1 << bit
				tx := must(k.NewReader(0, int64(len(wire))))
				must(tx.ReadAt(wire, 0))
				tx.Close()
				want := seen(f, s.want[i], mask)
				switch bad := check(t, k); {
				case (bad != nil) != want:
					t.Errorf("%v, mask %#x, bit %d: %v, want it seen: %v", f, mask, i, bad, want)
				case bad == nil:
					passed++
				case bad.Sig != s.want[i]:
					t.Errorf("%v, mask %#x, bit %d: %v, want %+v", f, mask, i, bad, s.want[i])
				default:
					found++
				}
				memory[pos] ^= 1 << bit
			})
		}
	}
	t.Logf("%d flips were found, %d were outside of the check mask", found, passed)
}

// masked returns attributes with a check mask as in C, where 0 checks nothing.
func masked(memory *sig.Format, mask sig.Mask) *mkey.Signature {
	return &mkey.Signature{Memory: memory, CheckMask: &mask}
}

// seen applies the table of check_mask in mlx5dv_wr_set_mkey_sig_block(3), in which bit 7
// represents the most significant byte.
func seen(f *sig.Format, e sig.Error, mask sig.Mask) bool {
	width, top := 4, 7 // bytes of the value, bit of the most significant
	switch {
	case f.Type == sig.CRC64:
		width = 8
	case f.Type == sig.T10DIF && e.Kind == sig.BadGuard:
		width = 2
	case f.Type == sig.T10DIF && e.Kind == sig.BadAppTag:
		width, top = 2, 5
	case f.Type == sig.T10DIF:
		top = 3
	}
	for i := range width {
		if mask>>(top-i)&1 != 0 && (e.Stored^e.Computed)>>(8*(width-1-i))&0xFF != 0 {
			return true
		}
	}
	return false
}
