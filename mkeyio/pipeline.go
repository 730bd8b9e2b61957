package mkeyio

import (
	"cmp"
	"context"
	"sync"

	"github.com/softmkey/softmkey/internal/base/fullio"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/mkey"
)

// pipeline is a running job. A feeder hands out chunks in order, workers transform
// them, and the goroutine of Run collects the results in order:
//
//	feed → jobs → work → done → collect → writes → write
//	  ↑                                               │
//	  └───────────────────── free ────────────────────┘
//
// The number of slots limits the chunks in flight. Every channel but jobs has
// room for all slots, so only jobs blocks its sender. The feeder reads input
// that is sequential, and the writer writes output that is sequential. The
// workers read and write other inputs and outputs at offsets.
type pipeline struct {
	job     *StreamJob
	shape   *shape
	dst     Output
	src     Input
	chunk   int64 // bytes of input in a chunk
	workers []worker
	report  JobReport

	free, jobs, done, writes chan *slot

	written  chan struct{} // closed when the writer has ended
	writeErr error         // valid once written is closed
}

// slot is a chunk in flight.
type slot struct {
	index  int
	off    int64 // offset in the input
	outOff int64 // offset in the output
	n      int   // bytes of input
	last   bool  // last chunk of the stream, which may be empty
	in     []byte
	out    []byte
	bad    []mkey.BadBlock
	exempt int64 // blocks that an escape exempts from the check
	err    error
}

// grow returns b with a length of n bytes, or a new slice if b is too short. The content is
// undefined.
func grow(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// run does the job. It returns when all goroutines have ended, except for one that is
// blocked in a sequential Read or Write when the context ends.
func (p *pipeline) run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)

	slots := 2*len(p.workers) + 2
	p.free, p.done, p.writes = make(chan *slot, slots), make(chan *slot, slots), make(chan *slot, slots)
	p.jobs, p.written = make(chan *slot), make(chan struct{})
	for range slots {
		p.free <- new(slot)
	}
	if err := p.presize(); err != nil {
		p.close()
		return err
	}
	go p.feed(ctx)
	var working sync.WaitGroup
	for _, w := range p.workers {
		working.Go(func() { p.work(ctx, w) })
	}
	go func() {
		working.Wait()
		close(p.done)
	}()
	go p.write()

	err := p.collect(ctx)
	cancel(err)
	for range p.done { // closed when the last worker has ended
	}
	close(p.writes)
	select {
	case <-p.written:
		err = cmp.Or(err, p.writeErr)
	case <-parent.Done():
		err = cmp.Or(err, context.Cause(parent))
	}
	if err == nil {
		err = p.dst.resize(p.report.BytesOut)
	}
	if err == nil && p.report.First != nil {
		err = p.report.First
	}
	return err
}

func (p *pipeline) close() {
	for _, w := range p.workers {
		w.close()
	}
}

// presize empties an output file and, if the length of the input is known, gives
// the file its final length, because a file that grows with each write is slower.
func (p *pipeline) presize() error {
	size, known := p.src.Size() // 0 if it is not known
	n, _, err := p.shape.length(size)
	if err == nil {
		err = p.dst.halves.checkEnd(n)
	}
	// writeAt does not write runs of zeros, and holes read as zeros only in a file that was empty.
	if err == nil {
		err = p.dst.resize(0)
	}
	if err == nil && known {
		err = p.dst.resize(n)
	}
	return err
}

// feed hands out chunks until the stream or the context ends.
func (p *pipeline) feed(ctx context.Context) {
	defer close(p.jobs)
	var off int64
	for index, last := 0, false; !last; index++ {
		var s *slot
		select {
		case s = <-p.free:
		case <-ctx.Done():
			return
		}
		s.index, s.off, s.bad, s.exempt, s.err = index, off, s.bad[:0], 0, nil
		if p.src.seq != nil {
			if s.in == nil {
				s.in = make([]byte, p.chunk)
			}
			s.n, s.err = p.src.readNext(s.in[:p.chunk])
			s.last = s.err != nil || int64(s.n) < p.chunk
		} else {
			s.n = int(min(p.chunk, p.src.size-off))
			s.last = off+int64(s.n) == p.src.size
		}
		off += int64(s.n)
		if last = s.last; last && s.err == nil {
			_, _, s.err = p.shape.length(off)
		}
		select {
		case p.jobs <- s:
		case <-ctx.Done():
			return
		}
	}
}

// work transforms chunks until the feeder or the context ends.
func (p *pipeline) work(ctx context.Context, w worker) {
	defer w.close()
	var own slot // buffers that stay in this core's cache
	for {
		select {
		case s := <-p.jobs:
			if s == nil {
				return
			}
			if s.err == nil {
				s.err = p.transform(w, s, &own)
			}
			p.done <- s
		case <-ctx.Done():
			return
		}
	}
}

// transform runs a chunk through the key. It uses the buffers of own at the ends that the
// worker itself reads or writes.
func (p *pipeline) transform(w worker, s, own *slot) error {
	if p.src.at != nil {
		if own.in == nil {
			own.in = make([]byte, p.chunk)
		}
		s.in = own.in[:s.n]
		if err := p.src.readAt(s.in, s.off); err != nil {
			return err
		}
	}
	s.in = s.in[:s.n]
	if p.dst.seq == nil {
		s.out = own.out
	}
	bad, err := w.work(s)
	s.bad = append(s.bad, bad...)
	if err == nil {
		s.exempt, err = w.checks().escaped(s.in, s.off, p.checked(s))
	}
	if p.dst.seq == nil {
		own.out = s.out
	}
	if err == nil && p.dst.at != nil && p.passes(s) {
		err = p.dst.writeAt(s.out, s.outOff)
	}
	return err
}

// checked returns how many bytes of a chunk's input are checked: all of them, or those up to the end of the bad
// block at which the job ends.
func (p *pipeline) checked(s *slot) int64 {
	if p.passes(s) {
		return int64(s.n)
	}
	return int64(s.bad[0].Sig.Block+1)*p.shape.in.Stride() - p.shape.in0 - s.off
}

// passes reports whether a chunk is written to the output.
func (p *pipeline) passes(s *slot) bool { return len(s.bad) == 0 || p.job.KeepGoing }

// collect takes the results in order until the stream ends or fails.
func (p *pipeline) collect(ctx context.Context) error {
	waiting := make(map[int]*slot)
	for next := 0; ; {
		var s *slot
		select {
		case s = <-p.done:
		case <-p.written:
			return p.writeErr
		}
		if s == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		waiting[s.index] = s
		for ; waiting[next] != nil; next++ {
			s := waiting[next]
			delete(waiting, next)
			last := s.last
			if err := p.take(s); err != nil {
				return err
			}
			if p.dst.seq != nil {
				p.writes <- s
			} else {
				p.recycle(s)
			}
			if last {
				return nil
			}
		}
	}
}

// take adds a chunk's result to the report and calls StreamJob.Bad and StreamJob.Progress.
func (p *pipeline) take(s *slot) error {
	if s.err != nil {
		return s.err
	}
	r := &p.report
	r.BytesIn += p.checked(s)
	r.Escaped += s.exempt
	for _, bad := range s.bad {
		if r.Errors++; r.First == nil {
			r.First = &bad
		}
		if p.job.Bad != nil {
			p.job.Bad(&bad)
		}
		if !p.job.KeepGoing {
			return &bad
		}
	}
	if !p.dst.checkOnly {
		r.BytesOut += int64(len(s.out))
	}
	if p.job.Progress != nil {
		p.job.Progress(r.BytesIn)
	}
	if s.last {
		n, tail, err := p.shape.length(r.BytesIn)
		r.Tail = tail
		return cmp.Or(err, p.dst.halves.checkEnd(n))
	}
	return nil
}

// write is the goroutine that writes a sequential output.
func (p *pipeline) write() {
	defer close(p.written)
	for s := range p.writes {
		if p.writeErr = fullio.Write(p.dst.seq, s.out); p.writeErr != nil {
			return
		}
		p.recycle(s)
	}
}

// recycle lets the feeder use a slot again. Its buffers belong to the slot only at ends that
// are sequential; otherwise they are those of a worker.
func (p *pipeline) recycle(s *slot) {
	if p.src.seq != nil {
		loan.End(s.in)
	}
	if p.dst.seq != nil {
		loan.End(s.out)
	}
	p.free <- s
}
