// Package detect finds the signature of a protected stream by trying formats on some of its
// blocks.
//
// A block is evidence for a format if its field has the guard that the format computes. A block
// whose data is one repeated byte is no evidence against a format, and one whose guard is zeros or
// ones none for it. A block whose tags exempt it from the check, like the unwritten
// ones of a formatted drive, is no evidence. Tags are read from the blocks whose guard fits.
package detect

import (
	"bytes"
	"cmp"
	"errors"
	"io"

	"github.com/softmkey/softmkey/sig"
)

// Found is a format that fits a stream.
type Found struct {
	Format sig.Format

	// Tried is the number of blocks whose guard was compared, Good the number of those that
	// fit the format's guard.
	Tried, Good int

	// AppTags is true if no application tag is in most of the blocks, and StorageTags the same for
	// storage tags; Format then has IgnoreApp or IgnoreStorage. RefTags is true if the reference
	// tags of most blocks neither rise with the block numbers nor are equal; Format then has the
	// most frequent one.
	AppTags, StorageTags, RefTags bool

	bits int // the evidence, in bits that the format predicts
}

const (
	// sample is the number of blocks of a stream that are compared with a format.
	sample = 96
	// quick is the number of blocks of a first, short comparison with an unusual format. A
	// format that fits none of them is not tried any further.
	quick = 6
)

// Stream returns the format that fits a stream of size bytes, or ok false if none does: if no
// more than half of the blocks that were tried have its guard, or if they are so few that a
// guard may fit by chance.
func Stream(r io.ReaderAt, size int64) (found Found, ok bool, err error) {
	return search(&sampler{r: r, length: size})
}

// Separate is Stream for size bytes of blocks whose fields are the length bytes of another file, in the order of the
// blocks. A format fits only if each block has a field.
func Separate(r io.ReaderAt, size int64, fields io.ReaderAt, length int64) (found Found, ok bool, err error) {
	return search(&sampler{r: r, length: size, fields: fields, fieldsLength: length})
}

func search(s *sampler) (found Found, ok bool, err error) {
	for _, tier := range []struct {
		sizes []int
		few   bool // only formats that fit one of a few blocks are compared with all
		least int  // bits of evidence: the formats are tried on every file
	}{
		{usual, false, 32},
		{all(), true, 48},
	} {
		for _, block := range tier.sizes {
			for _, f := range formats(block, s.fields != nil) {
				if tier.few {
					if few, err := s.try(f, quick); err != nil || few.Good == 0 {
						if err != nil {
							return Found{}, false, err
						}
						continue
					}
				}
				got, err := s.try(f, sample)
				if err != nil {
					return Found{}, false, err
				}
				if got.bits >= tier.least && got.Good*2 > got.Tried && got.bits > found.bits {
					found, ok = got, true
				}
			}
		}
		if ok {
			break
		}
	}
	return found, ok, nil
}

// Fits reports whether at least half of the blocks of a stream that are tried fit a format, with
// its tags. Blocks that an escape of the format exempts from the check do not count. A stream
// that is shorter than a block fits: none of its blocks speaks against the format.
func Fits(r io.ReaderAt, size int64, f sig.Format) (bool, error) {
	s := sampler{r: r, length: size, all: true}
	blocks, err := s.blocks(f, sample)
	if err != nil {
		return false, err
	}
	good, tried := 0, 0
	for _, b := range blocks {
		if f.Escapes(f.Field(b.bytes[f.Block():])) {
			continue
		}
		tried++
		if f.From(b.number).Verify(b.bytes) == nil {
			good++
		}
	}
	return good*2 >= tried, nil
}

// usual are the sizes of blocks that are tried first: those of memory keys and of disks, and of
// NVMe namespaces with 16 and 64 bytes of metadata whose last 8 bytes are the field.
var usual = []int{512, 4096, 520, 4104, 4160, 4048, 568, 4152, 1024, 2048, 8192, 16384, 32768, 65536, 131072}

// all returns all block sizes up to 8 KiB that are multiples of 8.
func all() []int {
	var sizes []int
	for n := 8; n <= 8192; n += 8 {
		sizes = append(sizes, n)
	}
	return sizes
}

// formats returns the formats that differ in their guards, for fields between the blocks or apart from them.
func formats(block int, apart bool) []sig.Format {
	var list []sig.Format
	for _, seed := range []sig.Seed{sig.SeedDefault, sig.SeedOnes, sig.SeedZeros} {
		for _, f := range []sig.Format{{Type: sig.T10DIF}, {Type: sig.T10DIF, Guard: sig.GuardCSUM}, {Type: sig.CRC32C}, {Type: sig.CRC64}, {Type: sig.CRC32}} {
			if f.BlockSize, f.Seed = block, seed; seed != sig.SeedDefault && (seed == sig.SeedOnes) != (f.Type == sig.T10DIF) {
				continue // it is the type's default
			}
			list = append(list, f)
		}
	}
	if block&(block-1) != 0 || block < 512 || block > 16384 {
		return list // no size of an NVMe block
	}
	for _, metadata := range []int{8, 16, 32, 64, 128} {
		for _, first := range []bool{false, true} {
			for t := sig.NVMe16; t <= sig.NVMe64; t++ {
				f := sig.Format{Type: t, BlockSize: block, Metadata: metadata, FieldFirst: first}
				// Metadata of the field alone has one end. A field of NVMe16 in the last 8 bytes is that of
				// a T10-DIF on a larger block, unless the fields are apart.
				if alone := f; first || t != sig.NVMe16 || apart && metadata > 8 {
					alone.Metadata = 0
					if f.Validate() == nil && (!first || alone.FieldSize() < metadata) {
						list = append(list, f)
					}
				}
			}
		}
	}
	return list
}

// block is a block of a stream with its field.
type block struct {
	number uint64
	bytes  []byte
}

// sampler reads some of the blocks of a stream.
type sampler struct {
	r            io.ReaderAt
	length       int64
	all          bool
	fields       io.ReaderAt // with the fields, if they are apart
	fieldsLength int64
	size         int             // of the blocks in known
	known        map[cut][]block // the blocks that were read
}

// cut is how a stream is cut into blocks, and how many of them are wanted.
type cut struct{ size, stride, n int }

// more is how many times as many blocks are read as are wanted, to find some that are evidence.
const more = 8

// blocks returns up to n blocks of a stream: the first ones, and others at equal distances.
// Blocks whose data and field are of one repeated byte each are left out, unless all is set. The
// fewer are left, the more places of the stream are read.
func (s *sampler) blocks(f sig.Format, n int) ([]block, error) {
	stride, size := f.Stride(), f.Block()
	key := cut{size, stride, n}
	if known, ok := s.known[key]; ok {
		return known, nil
	}
	if s.size != size {
		s.size, s.known = size, make(map[cut][]block)
	}
	var known []block
	count := s.length / int64(stride)
	if s.fields != nil {
		field := int64(f.FieldSize())
		if count = s.length / int64(size); s.length%int64(size) != 0 || s.fieldsLength%field != 0 || s.fieldsLength/field != count {
			count = 0
		}
	}
	seen := make(map[int64]bool)
	b := make([]byte, stride)
	read := func(at int64) error {
		if seen[at] || len(known) == n {
			return nil
		}
		seen[at] = true
		if err := s.read(b, size, at); err != nil {
			return err
		}
		if s.all || !repeats(b[:size]) || !repeats(b[size:]) {
			known = append(known, block{uint64(at), b})
			b = make([]byte, stride)
		}
		return nil
	}
	for i := range min(int64(n), count) {
		at := i
		if i >= int64(n)/3 && count > int64(n) {
			at = i * (count / int64(n))
		}
		if err := read(at); err != nil {
			return nil, err
		}
	}
	places := min(count, int64(more*n))
	for i := int64(0); i < places && len(known) < n; i++ {
		// i*count/places, which may not fit
		if err := read(i*(count/places) + i*(count%places)/places); err != nil {
			return nil, err
		}
	}
	s.known[key] = known
	return known, nil
}

// read reads block number at with its field. The block has size bytes.
func (s *sampler) read(b []byte, size int, at int64) error {
	if s.fields == nil {
		return readAt(s.r, b, at*int64(len(b)))
	}
	return cmp.Or(readAt(s.r, b[:size], at*int64(size)), readAt(s.fields, b[size:], at*int64(len(b)-size)))
}

func readAt(r io.ReaderAt, b []byte, at int64) error {
	_, err := r.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

// repeats reports whether all bytes are equal.
func repeats(b []byte) bool { return bytes.Count(b, b[:1]) == len(b) }

// try compares the guards of up to n blocks with those of a format, and derives its tags.
func (s *sampler) try(f sig.Format, n int) (Found, error) {
	blocks, err := s.blocks(f, n)
	if err != nil {
		return Found{}, err
	}
	config := sig.TransformConfig{In: f}
	_, tags := f.TagBits()
	if tags > 0 {
		config.CheckMask = new(sig.MaskGuard)
	}
	guard, err := sig.NewTransform(config)
	if err != nil {
		return Found{}, err
	}
	found := Found{Format: f}
	var good []block
	for _, b := range blocks {
		if exempt(f, b.bytes) {
			continue
		}
		in := sig.Interleaved(f, b.bytes)
		fits := guard.Run(in, in, 1, 0, nil) == nil
		// Guards of zeros or ones fit plain data by chance: zeros, and checksums of ones.
		if x := f.Field(b.bytes[f.Block():]).Guard; fits && x&(x+1) == 0 || !fits && repeats(b.bytes[:f.Block()]) {
			continue
		}
		found.Tried++
		if fits {
			good = append(good, b)
		}
	}
	found.Good = len(good)
	if tags > 0 && len(good) > 0 {
		found.tags(good)
	}
	found.bits = found.evidence(good)
	return found, nil
}

// exempt reports whether the tags of a block may exempt it from the check: it is no evidence.
func exempt(f sig.Format, b []byte) bool {
	_, tags := f.TagBits()
	return tags > 0 && f.Field(b[f.Block():]).AppTag == 0xFFFF
}

// evidence returns how many bits of the fields of good blocks the format predicts. Blocks with
// equal data count once. A checksum of data that is no noise predicts less than its width.
func (f *Found) evidence(good []block) (bits int) {
	width := cmp.Or(map[sig.Type]int{sig.T10DIF: 16, sig.NVMe16: 16, sig.CRC64: 64, sig.NVMe64: 64}[f.Format.Type], 32)
	if f.Format.Guard == sig.GuardCSUM {
		width = 8
	}
	distinct := make(map[string]bool)
	for _, b := range good {
		distinct[string(b.bytes[:f.Format.Block()])] = true
	}
	bits = width * len(distinct)
	if _, tags := f.Format.TagBits(); tags > 0 && f.Format.Remaps() && !f.RefTags {
		for i, b := range good { // the first block gives the tag that the others have to follow
			if i > 0 && f.Format.Field(b.bytes[f.Format.Block():]).RefTag == f.Format.From(b.number).RefTag {
				bits += 16
			}
		}
	}
	return bits
}

// tags sets the tags of a format from blocks whose guards are good. The storage tag of an NVMe type gets the fewest bits
// with which the most blocks have it, and a reference tag that follows a rule: one of fewer bits wraps sooner. If most
// blocks differ in their storage tags, it gets the fewest bits with which reference tags follow a rule. A T10-DIF may be
// a field of NVMe16, which has the same guard.
func (f *Found) tags(blocks []block) {
	plain := *f
	least, ref := f.Format.TagBits()
	most, follow := f.tagsOf(blocks)
	for bits := least + 1; bits <= least+ref && most < len(blocks); bits++ {
		g := plain
		g.Format = withStorage(plain.Format, bits)
		if g.Format.Validate() != nil {
			break
		}
		m, n := g.tagsOf(blocks)
		unruly := most*2 <= len(blocks) && n > follow+len(blocks)/8 && plain.Format.Type != sig.T10DIF
		if m > most && m*2 > len(blocks) || unruly {
			*f, most, follow = g, m, n
		}
	}
}

// withStorage returns a format with a storage tag of so many bits.
func withStorage(f sig.Format, bits int) sig.Format {
	if f.Type == sig.T10DIF && f.Guard == sig.GuardCRC && f.Seed != sig.SeedOnes {
		f.Type, f.Seed = sig.NVMe16, sig.SeedDefault
		for _, metadata := range []int{16, 32, 64, 128} { // the guard covers the metadata before the field
			if size := f.BlockSize - (metadata - 8); size >= 512 && size&(size-1) == 0 {
				f.BlockSize, f.Metadata = size, metadata
			}
		}
	}
	f.StorageBits = bits
	return f
}

// tagsOf sets the tags of a format. follow is the number of blocks whose reference tags follow a rule, and most the
// number of those among them that have the storage tag, too.
func (f *Found) tagsOf(blocks []block) (most, follow int) {
	apps, storage, rising, constant := map[uint16]int{}, map[uint64]int{}, map[uint64]int{}, map[uint64]int{}
	_, bits := f.Format.TagBits()
	field := func(b block) sig.Field { return f.Format.Field(b.bytes[f.Format.Block():]) }
	base := func(b block) uint64 { return (field(b).RefTag - b.number) & (1<<bits - 1) }
	for _, b := range blocks {
		x := field(b)
		apps[x.AppTag]++
		storage[x.StorageTag]++
		rising[base(b)]++
		constant[x.RefTag]++
	}
	var n int
	if f.Format.AppTag, n = frequent(apps); n*2 <= len(blocks) {
		f.Format.AppTag, f.Format.Flags, f.AppTags = 0, sig.IgnoreApp, true
	}
	tag, n := frequent(storage)
	if f.Format.StorageTag = tag; n*2 <= len(blocks) {
		f.Format.StorageTag, f.StorageTags = 0, true
		f.Format.Flags |= sig.IgnoreStorage
	}
	f.Format.RefTag, follow = frequent(rising)
	rises := true
	if same, n := frequent(constant); n > follow {
		rises = false
		f.Format.RefTag, follow = same, n
		f.Format.Flags |= sig.Type3
	}
	f.RefTags = follow*2 <= len(blocks)
	for _, b := range blocks {
		x := field(b)
		if x.StorageTag == tag && (rises && base(b) == f.Format.RefTag || !rises && x.RefTag == f.Format.RefTag) {
			most++
		}
	}
	return most, follow
}

// frequent returns the most frequent value and its count. Of several it returns the smallest.
func frequent[T uint16 | uint64](counts map[T]int) (value T, most int) {
	for v, n := range counts {
		if n > most || n == most && v < value {
			value, most = v, n
		}
	}
	return value, most
}
