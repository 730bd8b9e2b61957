package mkeytest

import (
	"math/rand/v2"
	"slices"

	"github.com/softmkey/softmkey/rdma"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// DEK is an mkey.DEK that accepts every keytag.
type DEK struct{ Cipher *xts.Cipher }

// Acquire implements mkey.DEK.
func (d DEK) Acquire([8]byte) (*xts.Cipher, error) { return d.Cipher, nil }

// Hold implements mkey.DEK.
func (d DEK) Hold() error { return nil }

// Release implements mkey.DEK.
func (d DEK) Release() {}

// RandomFormat returns a signature of any type with one of the keys' block sizes.
func RandomFormat(r *rand.Rand) *sig.Format {
	sizes := sig.KeyBlockSizes()
	f := &sig.Format{
		Type:      sig.Type(1 + r.IntN(4)),
		BlockSize: sizes[r.IntN(len(sizes))],
		Seed:      sig.Seed(r.IntN(3)),
	}
	if r.IntN(3) > 0 {
		f.BlockSize = sizes[r.IntN(2)] // small blocks, to have more of them
	}
	if f.Type == sig.T10DIF {
		f.Guard = sig.Guard(r.IntN(2))
		randomTags(r, f)
	}
	return f
}

// randomTags sets the tags of a T10-DIF format, and the rules for them.
func randomTags(r *rand.Rand, f *sig.Format) {
	f.AppTag = pick[uint16](r, 0, 0x5678, 0xFFFF)
	f.AppMask = pick[uint16](r, 0, 0, 0xFF0F)
	f.RefTag = uint64(pick(r, 0, 0xFFFFFFFE, r.Uint32()))
	f.Flags = pick(r, 0, sig.Plain, sig.RefRemap, sig.AppEscape, sig.AppRefEscape, sig.Type3|sig.RefRemap)
	if r.IntN(8) == 0 {
		f.AppMask, f.Flags = 0, f.Flags|sig.IgnoreApp
	} else { // something must be checked
		f.Flags |= pick(r, 0, 0, 0, sig.IgnoreRef, sig.IgnoreGuard)
	}
}

// RandomSignature returns signature attributes for a memory domain, a wire domain
// or both, with masks.
func RandomSignature(r *rand.Rand) *mkey.Signature {
	s := &mkey.Signature{CheckMask: pick(r, nil, new(sig.Mask), new(sig.Mask(r.Uint32())), new(sig.MaskAll))}
	switch r.IntN(4) {
	case 0:
		s.Memory = RandomFormat(r)
	case 1:
		s.Wire = RandomFormat(r)
	default:
		s.Memory, s.Wire = RandomFormat(r), RandomFormat(r)
		if r.IntN(2) == 0 {
			same := *s.Memory
			same.RefTag = uint64(uint32(same.RefTag) + uint32(r.IntN(2))*7)
			if same.Type != sig.T10DIF {
				same.RefTag = 0
			}
			s.Wire = &same
		}
		if s.Memory.Type == s.Wire.Type && s.Memory.BlockSize == s.Wire.BlockSize && r.IntN(2) == 0 {
			s.CopyMask = new(sig.Mask(r.Uint32()))
		}
	}
	if s.Memory != nil {
		s.MemoryCheckMask = randomMask(r)
	}
	if s.Wire != nil {
		s.WireCheckMask = randomMask(r)
	}
	return s
}

// RandomRow returns attributes of one of the rows B to E and G to J, with T10-DIF on blocks
// of 512 bytes and data units that hold a block, with or without its field.
func RandomRow(r *rand.Rand) (*mkey.Signature, *mkey.Crypto, *xts.Cipher) {
	format := func() *sig.Format {
		f := &sig.Format{Type: sig.T10DIF, BlockSize: 512, Seed: sig.Seed(r.IntN(3))}
		randomTags(r, f)
		return f
	}
	s := &mkey.Signature{CheckMask: pick(r, nil, nil, new(sig.Mask(r.Uint32())))}
	switch r.IntN(3) {
	case 0:
		s.Memory = format()
	case 1:
		s.Wire = format()
	default:
		s.Memory, s.Wire = format(), format()
		if r.IntN(2) == 0 {
			other := *s.Memory
			other.RefTag ^= uint64(r.IntN(2))
			other.AppTag ^= uint16(r.IntN(2))
			s.Wire = &other
		}
		if r.IntN(3) == 0 {
			s.CopyMask = new(sig.Mask(r.Uint32()))
		}
	}
	c, cipher := RandomCrypto(r, s)
	c.DataUnitSize = pick(r, 512, 520)
	return s, c, cipher
}

// randomMask returns a domain's own check mask, in most cases none.
func randomMask(r *rand.Rand) *sig.Mask {
	if r.IntN(3) > 0 {
		return nil
	}
	return new(pick(r, 0, 0xFF, sig.Mask(r.Uint32())))
}

// RandomCrypto returns crypto attributes that form one of the rows A to J with s, and the
// cipher of their key.
func RandomCrypto(r *rand.Rand, s *mkey.Signature) (*mkey.Crypto, *xts.Cipher) {
	key := make([]byte, pick(r, 32, 64))
	for i := range key {
		key[i] = byte(r.Uint32())
	}
	cipher, err := xts.New(key)
	if err != nil {
		panic(err) // the two random halves were equal
	}
	sizes := sig.KeyBlockSizes()
	c := &mkey.Crypto{
		EncryptOnTX:  r.IntN(2) == 0,
		Order:        mkey.Order(r.IntN(2)),
		DataUnitSize: sizes[r.IntN(len(sizes))],
		InitialTweak: xts.Tweak{Lo: pick(r, 0, ^uint64(0)-2, r.Uint64()), Hi: pick(r, 0, ^uint64(0))},
		DEK:          DEK{cipher},
	}
	if s != nil {
		switch {
		case c.EncryptOnTX && s.Memory != nil && s.Wire != nil:
			c.Order = mkey.SignatureBeforeCrypto
		case !c.EncryptOnTX && s.Memory != nil && s.Wire != nil:
			c.Order = mkey.SignatureAfterCrypto
		}
		// In half of the cases, the unit that fits blocks with their fields, so
		// that transfers may begin at every block.
		f := s.Wire
		if c.Order == mkey.SignatureAfterCrypto {
			f = s.Memory
		}
		if f != nil && slices.Contains(sizes, f.Stride()) && r.IntN(2) == 0 {
			c.DataUnitSize = f.Stride()
		}
	}
	return c, cipher
}

// RandomLayout divides total bytes into at most pieces segments or an interleaved
// pattern, with odd sizes, alignments and gaps, and returns it with the memory. Some
// segments are in nested keys, and some can only be copied.
func RandomLayout(r *rand.Rand, total, pieces int) (mkey.Layout, mkey.Bytes) {
	if r.IntN(4) == 0 {
		if l, mem := randomInterleaved(r, total); l != nil {
			return l, mem
		}
	}
	count := 1 + r.IntN(pieces)
	gap := r.IntN(70)
	mem := make(mkey.Bytes, total+(count+1)*gap+1)
	var list mkey.List
	kind := randomKind(r, mem)
	addr := r.IntN(gap + 1)
	for i := range count {
		n := total
		if i < count-1 {
			n = min(total, r.IntN(2*total/(count-i)+1))
		}
		list = append(list, mkey.Segment{Memory: kind(), Addr: uint64(addr), Length: uint64(n)})
		addr += n + gap
		total -= n
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if r.IntN(4) == 0 {
		inner := must(mkey.New(mkey.KeyConfig{Access: rdma.LocalWrite, Layout: list}))
		var length uint64
		for _, s := range list {
			length += s.Length
		}
		cut := r.Uint64N(length + 1)
		return mkey.List{{Memory: inner, Length: cut}, {Memory: inner, Addr: cut, Length: length - cut}}, mem
	}
	return list, mem
}

func randomInterleaved(r *rand.Rand, total int) (mkey.Layout, mkey.Bytes) {
	repeat := 1 + r.IntN(9)
	if total%repeat != 0 || total == 0 {
		return nil, nil
	}
	period := total / repeat
	var l mkey.Interleaved
	l.Repeat = uint32(repeat)
	addr := 0
	for left := period; left > 0; {
		n := 1 + r.IntN(left)
		skip := r.IntN(40)
		l.Entries = append(l.Entries, mkey.Entry{Addr: uint64(addr), Count: uint32(n), Skip: uint32(skip)})
		addr += repeat * (n + skip)
		left -= n
	}
	mem := make(mkey.Bytes, addr)
	kind := randomKind(r, mem)
	for i := range l.Entries {
		l.Entries[i].Memory = kind()
	}
	return l, mem
}

// randomKind returns a function that converts memory to the next entry of a layout: in
// place, to be copied, or one of the two at random.
func randomKind(r *rand.Rand, mem mkey.Bytes) func() mkey.Memory {
	spaces := []*Space{
		{Mem: mem, Rights: rdma.LocalWrite},
		{Mem: mem, Rights: rdma.LocalWrite, Base: 1 << 40},
	}
	mixed, copied := r.IntN(4) == 0, r.IntN(3) == 0
	return func() mkey.Memory {
		if mixed {
			copied = r.IntN(2) == 0
		}
		if copied {
			return spaces[r.IntN(2)]
		}
		return mem
	}
}

// pick returns one of the choices.
func pick[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
