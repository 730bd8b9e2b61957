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
	memCrypt  rxCrypt
	protect   rxSig
	strip     rxSig
	wireCrypt rxCrypt
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
		r.memCrypt.open(r.top, &r.transfer, r.span.mem0)
		r.top = &r.memCrypt
	}
	if p.sig != nil {
		g := &p.geo
		if p.sig.rx.protect == nil {
			r.strip.open(r.top, &r.transfer, p.sig.rx.strip, g.wire.Block, g.wire.Field, g.mem.Field)
		} else {
			r.protect.open(r.top, &r.transfer, p.sig.rx.protect, g.mem.Block, 0, g.mem.Field)
			r.protect.memory = &r.scatter
			r.strip.open(&r.protect, &r.transfer, p.sig.rx.strip, g.wire.Block, g.wire.Field, 0)
		}
		r.top = &r.strip
	}
	if p.crypto != nil && !p.geo.unitInMemory {
		r.wireCrypt.open(r.top, &r.transfer, r.span.wire0)
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

// rxCrypt encrypts or decrypts a stream in data units.
type rxCrypt struct {
	inbox
	below   pusher
	job     *transfer
	encrypt bool
	unit    int
	first   uint64 // number of the transfer's first unit
	number  uint64 // number of the next unit

	one  []byte // unit of which a writer has written only a part
	have int    // bytes of that unit that were written
}

func (l *rxCrypt) open(below pusher, job *transfer, pos uint64) {
	c := job.plan.crypto
	l.below, l.job = below, job
	l.encrypt, l.unit = !c.EncryptOnTX, c.DataUnitSize
	l.first = pos / uint64(l.unit)
	l.number = l.first
	l.one, l.have = grow(l.one, l.unit), 0
}

func (l *rxCrypt) close() {
	giveBack(&l.buf)
	l.below, l.job = nil, nil
}

func (l *rxCrypt) commit(n int) error {
	err := l.push(l.buf[:n])
	giveBack(&l.buf)
	return err
}

func (l *rxCrypt) push(p []byte) error {
	for len(p) > 0 {
		if l.have > 0 || len(p) < l.unit {
			n := copy(l.one[l.have:], p)
			l.have += n
			p = p[n:]
			if l.have == l.unit {
				if err := l.flush(); err != nil {
					return err
				}
			}
			continue
		}
		n := min(len(p), step) / l.unit * l.unit
		dst, err := l.below.grab(n)
		if err != nil {
			return err
		}
		if len(dst) < n && len(dst) < max(direct, l.unit) {
			buf := borrow()
			l.job.crypt(l.encrypt, buf[:n], p[:n], uint64(l.unit), l.number)
			err = l.below.push(buf[:n])
			buffers.Put(buf)
		} else {
			n = len(dst) / l.unit * l.unit
			l.job.crypt(l.encrypt, dst[:n], p[:n], uint64(l.unit), l.number)
			err = l.below.commit(n)
		}
		if err != nil {
			return err
		}
		l.number += uint64(n / l.unit)
		p = p[n:]
	}
	return nil
}

func (l *rxCrypt) pushTail(p []byte) error { return l.push(p) }

// flush passes on the part of a unit that l.one has.
func (l *rxCrypt) flush() error {
	one := l.one[:l.have]
	l.have = 0
	l.job.crypt(l.encrypt, one, one, uint64(l.unit), l.number)
	l.number++
	return l.below.push(one)
}

func (l *rxCrypt) finish() error {
	if l.have > 0 {
		job := (l.number-l.first)*uint64(l.unit) + uint64(l.have)
		if err := geometry.CheckJob(job, uint64(l.unit)); err != nil {
			return err
		}
		if err := l.flush(); err != nil {
			return err
		}
	}
	return l.below.finish()
}

// rxSig runs one signature transform over blocks of one size.
type rxSig struct {
	inbox
	below  pusher
	memory *scatter // for a first block that is not complete, whose field is left out
	job    *transfer
	sig    *sig.Transform
	blocks blocks
	number uint64 // number of the next block
	head   int    // bytes left of a first block that is not complete

	one  []byte // block, with its field, of which a writer has written only a part
	have int    // bytes of that block that were written
}

func (l *rxSig) open(below pusher, job *transfer, t *sig.Transform, block, inField, outField uint64) {
	l.below, l.job, l.sig = below, job, t
	l.blocks.open(job, WireDomain, block, inField, outField)
	l.number = l.blocks.first
	l.head = int(l.blocks.first*block - job.span.data0)
	l.one, l.have = grow(l.one, int(l.blocks.in)), 0
}

func (l *rxSig) close() {
	giveBack(&l.buf)
	l.below, l.memory, l.job, l.sig = nil, nil, nil, nil
}

func (l *rxSig) commit(n int) error {
	err := l.push(l.buf[:n])
	giveBack(&l.buf)
	return err
}

func (l *rxSig) push(p []byte) error {
	in := int(l.blocks.in)
	for len(p) > 0 {
		var n int
		var err error
		switch {
		case l.head > 0:
			n = min(len(p), l.head)
			if err = l.below.push(p[:n]); err == nil {
				if l.head -= n; l.head == 0 {
					err = l.memory.commit(int(l.blocks.out) - l.blocks.size)
				}
			}
		case l.have > 0 || len(p) < in:
			n = copy(l.one[l.have:], p)
			if l.have += n; l.have == in {
				l.have = 0
				_, err = l.transform(l.one, 1)
			}
		default:
			n, err = l.transform(p, min(len(p), step)/in)
			n *= in
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// transform passes on at most count > 0 complete blocks of p and returns how many it
// passed on.
func (l *rxSig) transform(p []byte, count int) (int, error) {
	out := int(l.blocks.out)
	dst, err := l.below.grab(count * out)
	if err != nil {
		return 0, err
	}
	if len(dst) < count*out && len(dst) < max(direct, out) {
		buf := borrow()
		l.blocks.transform(l.sig, buf[:], p, l.number, uint64(count))
		err = l.below.push(buf[:count*out])
		buffers.Put(buf)
	} else {
		count = len(dst) / out
		l.blocks.transform(l.sig, dst, p, l.number, uint64(count))
		err = l.below.commit(count * out)
	}
	l.number += uint64(count)
	return count, err
}

// pushTail keeps the last byte of p until finish. A block of this layer that ends with that
// byte is then not complete here either.
func (l *rxSig) pushTail(p []byte) error {
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

func (l *rxSig) finish() error {
	// Only the data of a block that is not complete goes on, not the beginning of its
	// field.
	tail := l.one[:min(l.have, l.blocks.size)]
	l.have = 0
	var err error
	switch {
	case len(tail) == l.blocks.size:
		err = l.below.pushTail(tail)
	case len(tail) > 0:
		err = l.below.push(tail)
	}
	if err != nil {
		return err
	}
	return l.below.finish()
}
