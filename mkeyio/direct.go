package mkeyio

import (
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// directWorker executes jobs without a key, for block sizes and types that keys do not
// support. Its results equal those of a key.
type directWorker struct {
	checking
	shape   *shape
	in, out sig.Format     // a side without a signature has the block size of the other side
	first   *sig.Transform // from the input
	second  *sig.Transform // to the output, if the block sizes differ; nil: first does the whole job
	data    []byte         // between first and second
}

// direct reports whether a job is done without a key.
func (j *StreamJob) direct() bool {
	if j.Signature == nil || j.Crypto != nil {
		return false
	}
	for _, f := range []*sig.Format{j.Signature.Memory, j.Signature.Wire} {
		if f != nil && (!f.Type.OfKey() || !slices.Contains(sig.KeyBlockSizes(), f.Block())) {
			return true
		}
	}
	return j.keyless || j.keepEscapes
}

func newDirectWorker(j *StreamJob, s *shape, check checking) (*directWorker, error) {
	if s.serial {
		return nil, failure.New("mkeyio run", syscall.EINVAL, "blocks of %d and of %d bytes begin together only every %d bytes of data: must be at most %d", s.in.Block, s.out.Block, geometry.LCM(s.in.Block, s.out.Block), chunkLimit)
	}
	w := &directWorker{checking: check, shape: s}
	in, out := j.Signature.Memory, j.Signature.Wire
	if s.receives {
		in, out = out, in
	}
	mask := j.Signature.Checked(w.check.domain)
	c := sig.TransformConfig{CheckMask: &mask, CopyMask: j.Signature.CopyMask, KeepEscapes: j.keepEscapes}
	switch {
	case in == nil:
		c.In, c.Out = sig.Format{BlockSize: int(s.out.Block)}, *out
	case out == nil:
		c.In, c.Out = *in, sig.Format{BlockSize: int(s.in.Block)}
	default:
		c.In, c.Out = *in, *out
	}
	w.in, w.out = c.In, c.Out
	var err error
	if c.In.Block() != c.Out.Block() && c.CopyMask == nil {
		if w.second, err = sig.NewTransform(sig.TransformConfig{Out: c.Out}); err != nil {
			return nil, err
		}
		c.Out = sig.Format{BlockSize: c.In.BlockSize}
	}
	w.first, err = sig.NewTransform(c)
	return w, err
}

func (w *directWorker) work(s *slot) ([]mkey.BadBlock, error) {
	data := w.shape.in.Data(s.off)
	end, _, err := w.shape.length(s.off + int64(len(s.in)))
	if err != nil {
		return nil, err
	}
	s.outOff = w.shape.out.Len(data)
	s.out = grow(s.out, end-s.outOff)
	data += w.shape.in.Data(w.shape.in0) // count from the beginning of the domain

	w.check.bad = w.check.bad[:0]
	if w.second == nil {
		move(w.first, w.out, s.out, w.in, s.in, data, w.check.add)
		return w.check.bad, nil
	}
	between := sig.Format{BlockSize: w.in.BlockSize}
	w.data = grow(w.data, w.shape.in.Data(int64(len(s.in))))
	move(w.first, between, w.data, w.in, s.in, data, w.check.add)
	move(w.second, w.out, s.out, sig.Format{BlockSize: w.out.BlockSize}, w.data, data, nil)
	return w.check.bad, nil
}

// move runs the complete blocks of src through t and copies the data after
// them. data is the offset of src in the stream's data.
func move(t *sig.Transform, out sig.Format, dst []byte, in sig.Format, src []byte, data int64, bad func(sig.Error) bool) {
	n := len(src) / in.Stride()
	t.Run(sig.Interleaved(out, dst), sig.Interleaved(in, src), n, uint64(data)/uint64(t.BlockSize()), bad)
	copy(dst[n*out.Stride():], src[n*in.Stride():])
}
