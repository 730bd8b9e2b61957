package sig

import "math/bits"

// Blocks is a run of blocks in memory: block i begins at Data[i*DataStride], its field
// at Fields[i*FieldStride]. Data and fields may share one slice, as in a stream of
// blocks and fields, or be in two buffers, like the separate metadata of NVMe. Fields is
// ignored on a side without a signature.
type Blocks struct {
	Data        []byte
	DataStride  int // bytes from one block to the next
	Fields      []byte
	FieldStride int // bytes from one field to the next
}

// Interleaved returns the blocks of a stream of blocks and fields.
func Interleaved(f Format, buf []byte) Blocks {
	b := Blocks{Data: buf, DataStride: f.Stride(), FieldStride: f.Stride()}
	if size := f.Block(); len(buf) > size {
		b.Fields = buf[size:]
	}
	return b
}

// Separate returns blocks that follow one another in data, and fields that follow one
// another in fields.
func Separate(f Format, data, fields []byte) Blocks {
	return Blocks{Data: data, DataStride: f.Block(), Fields: fields, FieldStride: f.FieldSize()}
}

// from returns the blocks from number i on.
func (b Blocks) from(i int) Blocks {
	b.Data = b.Data[i*b.DataStride:]
	if b.Fields != nil {
		b.Fields = b.Fields[i*b.FieldStride:]
	}
	return b
}

// holds reports whether the slices have room for n blocks of size bytes, with
// fields of field bytes.
func (b Blocks) holds(n, size, field int) bool {
	return fits(b.Data, b.DataStride, size, n) && (field == 0 || fits(b.Fields, b.FieldStride, field, n))
}

// fits reports whether b has room for n pieces of size bytes, stride bytes
// apart. It multiplies to 128 bits, so that the product cannot wrap around.
func fits(b []byte, stride, size, n int) bool {
	hi, lo := bits.Mul64(uint64(stride), uint64(n-1))
	return len(b) >= size && (n == 1 || stride >= size) && hi == 0 && lo <= uint64(len(b)-size)
}
