package mkey

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// rxStream writes a range of a key's wire domain into memory. Its layers push:
// each layer passes complete blocks or data units on towards memory, and keeps
// an incomplete one until the next write.
//
//	wire crypto → signature of the wire → signature of memory → memory crypto → memory
type rxStream struct {
	generation // detects closed handles
	transfer
	length  uint64
	written uint64
	err     error // error of the first call that failed; errFinished after Finish
	top     pusher

	// held is the write-behind buffer. It collects small writes until it has
	// full bytes; have is the number of bytes so far. If full is 0, every write
	// goes to memory at once.
	held       *buffer
	have, full int

	list listPlan // plan of a stream without a key

	scatter   scatter
	memCrypt  rxLayer
	protect   rxLayer
	strip     rxLayer
	wireCrypt rxLayer
}

// pusher is a layer of an RX.
type pusher interface {
	// push takes the next bytes of the layer's stream.
	push(p []byte) error
	// grab returns a buffer for at most n > 0 of the next bytes, which the caller fills.
	// commit takes the first n bytes of that buffer. The buffer is empty if the caller must
	// push.
	grab(n int) ([]byte, error)
	commit(n int) error
	// pushTail is push for the data of a last block that has no field.
	pushTail(p []byte) error
	// finish passes on the part of a last block or unit that the layer keeps.
	finish() error
}

var rxPool = sync.Pool{New: func() any { return new(rxStream) }}

// openRX opens a stream. need is the right that the key must grant. If exact is
// false, length is the largest number of bytes that may be written.
func (k *Key) openRX(offset, length uint64, need rdma.Access, exact bool) (*rxStream, error) {
	r := rxPool.Get().(*rxStream)
	if err := r.open(k, offset, length, need, exact); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// openListRX opens a stream over a list of memory without a key.
func openListRX(l List, need rdma.Access) (keydoor.RX, error) {
	r := rxPool.Get().(*rxStream)
	p, n, err := r.list.set(l)
	if err == nil {
		err = r.start(nil, p, 0, n, need, false)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *rxStream) open(k *Key, offset, length uint64, need rdma.Access, exact bool) error {
	p, err := k.usable(need)
	if err == nil {
		offset, err = p.offset(offset)
	}
	if err != nil {
		return err
	}
	if p.transaction != nil {
		return failure.New("mkey access", syscall.EOPNOTSUPP, "key %#x has a transaction signature: it can be read only", k.num())
	}
	return r.start(k, p, offset, length, need, exact)
}

func (r *rxStream) start(k *Key, p *plan, offset, length uint64, need rdma.Access, exact bool) error {
	if err := r.transfer.open(k, p, offset, length, exact, need); err != nil {
		return err
	}
	r.length = length
	r.have, r.full = 0, 0
	full, _ := r.bufferSize()
	r.full = int(full)
	r.scatter.cursor = cursor{layout: p.layout, visit: &r.visit, need: r.need}
	r.scatter.write, r.scatter.pos = true, r.span.mem0
	r.top = &r.scatter
	if p.crypto != nil && p.geo.unitInMemory {
		r.memCrypt.crypt(r.top, &r.transfer, r.span.mem0, r.span.mem1)
		r.top = &r.memCrypt
	}
	if p.sig != nil {
		g := &p.geo
		if p.sig.rx.protect == nil {
			r.strip.sign(r.top, &r.transfer, p.sig.rx.strip, g.wire.Block, g.wire.Field, g.mem.Field)
		} else {
			r.protect.sign(r.top, &r.transfer, p.sig.rx.protect, g.mem.Block, 0, g.mem.Field)
			r.protect.memory = &r.scatter
			r.strip.sign(&r.protect, &r.transfer, p.sig.rx.strip, g.wire.Block, g.wire.Field, 0)
		}
		r.top = &r.strip
	}
	if p.crypto != nil && !p.geo.unitInMemory {
		r.wireCrypt.crypt(r.top, &r.transfer, r.span.wire0, r.span.wire1)
		r.top = &r.wireCrypt
	}
	return nil
}

// Write implements keydoor.RX. Memory that could not be reached ends the stream: every
// later call returns the same error.
func (r *rxStream) Write(p []byte) error {
	if r.err == nil {
		r.err = r.live(r.key)
	}
	if r.err != nil {
		return r.err
	}
	if uint64(len(p)) > r.length-r.written {
		return failure.New("mkey write", syscall.EFAULT, "%d bytes more after %d: the stream has %d", len(p), r.written, r.length)
	}
	r.written += uint64(len(p))
	r.err = r.collect(p)
	return r.err
}

// Place implements keydoor.RX.
func (r *rxStream) Place(n int) []byte {
	if r.err != nil || r.full == 0 || n > most || uint64(n) > r.length-r.written {
		return nil
	}
	if r.held == nil {
		r.held = borrow()
	}
	return r.held[r.have:][:n:n]
}

// Placed implements keydoor.RX.
func (r *rxStream) Placed(n int) error {
	if r.err == nil {
		r.err = r.live(r.key)
	}
	if r.err != nil {
		return r.err
	}
	r.written += uint64(n)
	if r.have += n; r.have >= r.full {
		r.err = r.push(r.held[:r.full])
		r.have = copy(r.held[:], r.held[r.full:r.have])
	}
	return r.err
}

// collect adds p to the write-behind, or pushes it if it is long.
func (r *rxStream) collect(p []byte) error {
	for r.full > 0 && (r.have > 0 || len(p) < r.full) && len(p) > 0 {
		if r.held == nil {
			r.held = borrow()
		}
		n := copy(r.held[r.have:r.full], p)
		r.have += n
		p = p[n:]
		if r.have == r.full {
			if err := r.flush(); err != nil {
				return err
			}
		}
	}
	if len(p) == 0 {
		return nil
	}
	return r.push(p)
}

// push writes memory.
func (r *rxStream) push(p []byte) error {
	if err := r.visit.begin(r.key); err != nil {
		return err
	}
	defer r.visit.end()
	return r.top.push(p)
}

// flush empties r.held.
func (r *rxStream) flush() error {
	if r.held == nil {
		return nil
	}
	err := r.push(r.held[:r.have])
	r.have = 0
	giveBack(&r.held)
	return err
}

// Flush implements keydoor.RX.
func (r *rxStream) Flush() error {
	switch r.err {
	case nil:
		r.err = r.flush()
	case errFinished:
		return nil
	}
	return r.err
}

// Written returns how many bytes the stream has taken.
func (r *rxStream) Written() uint64 { return r.written }

// Finish implements keydoor.RX: the part of a last block goes to memory without a
// field, the part of a last data unit is encrypted or decrypted.
func (r *rxStream) Finish() error {
	if r.err == errFinished {
		return nil
	}
	if r.err == nil {
		r.err = r.flush()
	}
	if r.err == nil {
		r.err = r.finish()
	}
	if r.err != nil {
		return r.err
	}
	r.err = errFinished
	return nil
}

// finish writes the part of a last block or unit to memory.
func (r *rxStream) finish() error {
	if err := r.visit.begin(r.key); err != nil {
		return err
	}
	defer r.visit.end()
	return r.top.finish()
}

// errFinished is the error of Write after Finish.
var errFinished error = failure.New("mkey write", syscall.EINVAL, "the stream was finished")

// Bad returns the number of bad blocks found so far. After Finish, all blocks
// have been checked.
func (r *rxStream) Bad() int { return r.bad }

// Close ends the stream, which must not be used any more. Bytes that were neither
// flushed nor finished are dropped.
func (r *rxStream) Close() {
	r.transfer.close()
	giveBack(&r.held)
	r.have = 0
	r.length, r.written, r.err, r.top = 0, 0, nil, nil
	r.list.clear()
	r.scatter.layout = nil
	r.memCrypt.close()
	r.protect.close()
	r.strip.close()
	r.wireCrypt.close()
	rxPool.Put(r)
}

// scatter is the lowest layer: it writes the memory domain.
type scatter struct {
	cursor
	batch
	pos uint64
}

func (s *scatter) push(p []byte) error {
	for len(p) > 0 {
		b, err := s.grab(len(p))
		n := copy(b, p)
		if n == 0 && err == nil {
			n = int(s.visit.n)
			err = s.add(s.visit.space, s.visit.addr, p[:n])
		}
		if err != nil {
			s.drop()
			return err
		}
		s.pos += uint64(n)
		p = p[n:]
	}
	return s.batch.flush()
}

func (s *scatter) grab(n int) ([]byte, error) {
	return s.at(s.pos, uint64(n))
}

func (s *scatter) commit(n int) error {
	s.pos += uint64(n)
	return nil
}

func (s *scatter) pushTail(p []byte) error { return s.push(p) }

func (s *scatter) finish() error { return nil }

// inbox is the buffer that a layer returns from grab.
type inbox struct{ buf *buffer }

func (i *inbox) grab(n int) ([]byte, error) {
	if i.buf == nil {
		i.buf = borrow()
	}
	return i.buf[:min(n, len(i.buf))], nil
}

// rxLayer does the work of a signature or of the crypto.
type rxLayer struct {
	work
	inbox
	below  pusher
	memory *scatter // for a first block that is not complete, whose field is left out
	number uint64   // number of the next block or unit
	head   int      // bytes left of a first block that is not complete

	one  []byte // block, with its field, or unit of which a writer has written only a part
	have int    // bytes of it that were written
}

func (l *rxLayer) sign(below pusher, job *transfer, t *sig.Transform, block, inField, outField uint64) {
	l.work.sign(job, t, WireDomain, block, inField, outField)
	l.open(below, int(l.first*block-job.span.data0))
}

func (l *rxLayer) crypt(below pusher, job *transfer, from, to uint64) {
	l.work.crypt(job, !job.plan.crypto.EncryptOnTX, from, to)
	l.open(below, 0)
}

func (l *rxLayer) open(below pusher, head int) {
	l.below, l.number, l.head = below, l.first, head
	l.one, l.have = grow(l.one, int(l.in)), 0
}

func (l *rxLayer) close() {
	giveBack(&l.buf)
	l.below, l.memory, l.job, l.sig = nil, nil, nil, nil
}

func (l *rxLayer) commit(n int) error {
	err := l.push(l.buf[:n])
	giveBack(&l.buf)
	return err
}

func (l *rxLayer) push(p []byte) error {
	in := int(l.in)
	for len(p) > 0 {
		var n int
		var err error
		switch {
		case l.head > 0:
			n = min(len(p), l.head)
			if err = l.below.push(p[:n]); err == nil {
				if l.head -= n; l.head == 0 {
					err = l.memory.commit(int(l.out) - l.size)
				}
			}
		case l.have > 0 || len(p) < in:
			n = copy(l.one[l.have:], p)
			if l.have += n; l.have == in {
				l.have = 0
				_, err = l.pass(l.one, 1)
			}
		default:
			n, err = l.pass(p, min(len(p), step)/in)
			n *= in
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// pass passes on at most count > 0 complete blocks or units of p and returns how many it passed on.
func (l *rxLayer) pass(p []byte, count int) (int, error) {
	in, out := int(l.in), int(l.out)
	dst, err := l.below.grab(count * out)
	if err != nil {
		return 0, err
	}
	if len(dst) < count*out && len(dst) < max(direct, out) {
		buf := borrow()
		l.run(buf[:count*out], p[:count*in], l.number)
		err = l.below.push(buf[:count*out])
		buffers.Put(buf)
	} else {
		count = len(dst) / out
		l.run(dst[:count*out], p[:count*in], l.number)
		err = l.below.commit(count * out)
	}
	l.number += uint64(count)
	return count, err
}

// pushTail keeps the last byte of p until finish, if the layer has blocks. A block of this layer that ends with that
// byte is then not complete here either.
func (l *rxLayer) pushTail(p []byte) error {
	if l.sig == nil {
		return l.push(p)
	}
	last := len(p) - 1
	if err := l.push(p[:last]); err != nil {
		return err
	}
	if l.head > 0 {
		return l.push(p[last:])
	}
	l.have += copy(l.one[l.have:], p[last:])
	return nil
}

func (l *rxLayer) finish() error {
	// Only the data of a block that is not complete goes on, not the beginning of its field.
	tail := l.one[:min(l.have, l.size)]
	l.have = 0
	push := l.below.push
	switch {
	case len(tail) == 0:
		return l.below.finish()
	case l.sig == nil:
		if err := geometry.CheckJob((l.number-l.first)*l.in+uint64(len(tail)), l.in); err != nil {
			return err
		}
		l.run(tail, tail, l.number)
	case len(tail) == l.size:
		push = l.below.pushTail
	}
	if err := push(tail); err != nil {
		return err
	}
	return l.below.finish()
}
