package sig

import (
	"syscall"
	"unsafe"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// convertStep is the number of bytes of data that Convert takes through all its passes
// at a time, so that the later passes find them in the cache.
const convertStep = 32 << 10

// Convert checks the stream src, in the format f, as Verify does, and writes it
// to dst in the format to, whose type and block size may be any other. One of
// the two may be plain data, a Format of Type NoSignature. It returns the number of
// bytes written, which is to.StreamLen of the data in src; dst must have room
// for them. All data is converted even if a block is bad; the error is then an
// *Error with the first bad block. Convert panics if dst and src overlap, unless they
// begin at the same byte and both formats have blocks and fields of one size.
//
// If both formats have one type and block size, the bytes of [ConsistentCopyMask] are
// copied, so that a bad field stays bad. The rest of the field is generated.
func (f Format) Convert(to Format, dst, src []byte) (int, error) {
	return f.convert("sig convert", to, dst, src)
}

func (f Format) convert(op string, to Format, dst, src []byte) (int, error) {
	// A side without a signature has no blocks of its own.
	switch {
	case f.Type == NoSignature && to.Type == NoSignature:
		return 0, f.signed(op)
	case f.Type == NoSignature:
		f.BlockSize = to.BlockSize
	case to.Type == NoSignature:
		to.BlockSize = f.BlockSize
	}
	if err := to.Validate(); err != nil {
		return 0, err
	}
	blocks, tail, err := f.cut(op, len(src))
	if err != nil {
		return 0, err
	}
	data := blocks*f.Block() + tail
	length := to.StreamLen(int64(data))
	if int64(len(dst)) < length {
		return 0, failure.New(op, syscall.EINVAL, "destination of %d bytes: %d are needed", len(dst), length)
	}
	dst = dst[:length]
	if overlap(dst, src) && (unsafe.SliceData(dst) != unsafe.SliceData(src) || f.Block() != to.Block() || f.FieldSize() != to.FieldSize()) {
		panic("sig: invalid buffer overlap")
	}

	o := outcome{keep: true}
	if f.Block() == to.Block() {
		err = f.convertAligned(to, dst, src, blocks, &o)
	} else {
		err = f.convertRecut(to, dst, src, blocks, data, &o)
	}
	if err != nil {
		return 0, err
	}
	return len(dst), o.err()
}

// overlap reports whether two slices share memory.
func overlap(x, y []byte) bool {
	return len(x) > 0 && len(y) > 0 &&
		uintptr(unsafe.Pointer(&x[0])) <= uintptr(unsafe.Pointer(&y[len(y)-1])) &&
		uintptr(unsafe.Pointer(&y[0])) <= uintptr(unsafe.Pointer(&x[len(x)-1]))
}

// convertAligned converts between blocks of one size, with one transform, and with ConsistentCopyMask.
func (f Format) convertAligned(to Format, dst, src []byte, blocks int, o *outcome) error {
	c := TransformConfig{In: f, Out: to, KeepEscapes: true}
	if f.Type == to.Type {
		mask := ConsistentCopyMask(f, to)
		c.CopyMask = &mask
	}
	var t Transform
	if err := t.compile(c); err != nil {
		return err
	}
	t.run(Interleaved(to, dst), Interleaved(f, src), blocks, 0, o)
	copy(dst[blocks*to.Stride():], src[blocks*f.Stride():])
	return nil
}

// convertRecut converts between blocks of different sizes in three passes: it checks the
// input in place, copies the data between the fields of both streams, and generates the
// output's fields in place.
func (f Format) convertRecut(to Format, dst, src []byte, blocks, data int, o *outcome) error {
	var check, generate Transform
	if err := check.compile(TransformConfig{In: f}); err != nil {
		return err
	}
	if err := generate.compile(TransformConfig{Out: to}); err != nil {
		return err
	}
	inSize, outSize := f.Block(), to.Block()
	checked, generated := 0, 0
	for at := 0; at < data; {
		end := at + min(convertStep, data-at)

		n := min((end+inSize-1)/inSize, blocks) - checked
		in := Interleaved(f, src[checked*f.Stride():])
		check.run(in, in, n, uint64(checked), o)
		checked += n

		for at < end {
			i, o := at/inSize, at/outSize
			from := src[i*f.Stride()+at-i*inSize:][:min(end, (i+1)*inSize, (o+1)*outSize)-at]
			at += copy(dst[o*to.Stride()+at-o*outSize:], from)
		}

		n = at/outSize - generated
		to.clearFields(dst[generated*to.Stride():], n)
		out := Interleaved(to, dst[generated*to.Stride():])
		generate.run(out, out, n, uint64(generated), o)
		generated += n
	}
	return nil
}

// clearFields clears what follows the first n blocks of a stream whose fields are generated in place:
// metadata beside a field would stay as it is.
func (f Format) clearFields(stream []byte, n int) {
	if f.FieldSize() == f.width() {
		return
	}
	for i := range n {
		clear(stream[i*f.Stride()+f.Block():][:f.FieldSize()])
	}
}
