package mkeyio

import (
	"context"
	"runtime"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// Run does a job: it reads src, transforms it and writes dst. The report is
// valid after an error, too: it covers the part that was processed.
//
// If the error is a *[mkey.BadBlock], it is the first bad block. With
// StreamJob.KeepGoing the output is then complete; without it, dst has an undefined
// part of the output. An *operr.Error means that the job cannot be done.
// Nothing was then written, unless the reason is the length of an input whose
// length was not known in advance. The context's cause, and errors of src and
// dst, are returned unchanged.
func Run(ctx context.Context, job StreamJob, dst Output, src Input) (JobReport, error) {
	start := time.Now()
	p, err := prepare(&job, dst, src)
	if err != nil {
		return JobReport{}, err
	}
	err = p.run(ctx)
	if p.shape.in.Signed() == p.workers[0].checks().checks() { // otherwise the masks leave nothing of a field to check
		p.report.Blocks = p.shape.blocks(p.report.BytesIn)
	}
	p.report.Elapsed = time.Since(start)
	return p.report, err
}

// prepare checks everything about a job that does not depend on its data.
func prepare(j *StreamJob, dst Output, src Input) (*pipeline, error) {
	if err := src.check(); err != nil {
		return nil, err
	}
	if err := dst.check(); err != nil {
		return nil, err
	}
	s, err := newShape(j)
	if err != nil {
		return nil, err
	}
	if err := s.checkSeparate(dst, src); err != nil {
		return nil, err
	}
	switch {
	case j.Direction > RX:
		return nil, failure.New("mkeyio run", syscall.EINVAL, "direction %d: must be TX or RX", j.Direction)
	case dst.checkOnly && !s.in.Signed():
		return nil, failure.New("mkeyio run", syscall.EINVAL, "nothing to check: the input has no signature")
	case j.units != nil:
		// Encryption has checked it.
	case j.Crypto != nil || !dst.checkOnly && !j.direct():
		// probe opens a key, which refuses jobs that keys do not support.
		if err := probe(j, &s, src); err != nil {
			return nil, err
		}
	}
	p := &pipeline{job: j, shape: &s, dst: dst, src: src, chunk: s.in.Len(s.chunk)}
	n := j.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if size, known := src.Size(); known {
		n = int(min(int64(n), size/p.chunk+1))
	}
	if s.serial && !dst.checkOnly && !j.direct() {
		n = 1
	}
	for range n {
		w, err := newWorker(j, &s, dst.checkOnly)
		if err != nil {
			p.close()
			return nil, err
		}
		p.workers = append(p.workers, w)
	}
	return p, nil
}

// probe opens the whole stream as one transfer. A stream that a key refuses is
// then refused with the length and offset that the caller knows, rather than
// with those of a chunk.
func probe(j *StreamJob, s *shape, src Input) error {
	key, err := newKey(j, &window{})
	if err != nil {
		return err
	}
	defer key.Close()
	size, known := src.Size()
	if !known {
		return nil
	}
	out, _, err := s.length(size)
	if err != nil {
		return err
	}
	if s.receives {
		r, err := keydoor.Of(key).RX(j.Offset, uint64(size))
		if err == nil {
			r.Close()
		}
		return err
	}
	t, err := keydoor.Of(key).TX(j.Offset, uint64(out))
	if err == nil {
		t.Close()
	}
	return err
}
