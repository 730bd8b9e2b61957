package mkey

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// txStream reads a range of a key's wire domain out of memory. Its layers pull:
// each layer asks the next one towards memory for complete blocks or data
// units, and keeps the last one for a reader that stops within it.
//
//	wire crypto ← signature of the wire ← signature of memory ← memory crypto ← memory
//
// For a reader of small pieces the stream reads ahead. A reader may go back, as a
// retransmission does.
type txStream struct {
	generation // detects closed handles
	transfer
	length uint64
	top    puller

	// held is the read-ahead buffer, or nil. It has the bytes from..to-1 of the
	// wire domain, begins and ends at multiples of grain, and grows by chunk
	// bytes. If grain is 0, the stream does not read ahead.
	held     *buffer
	from, to uint64
	grain    uint64
	chunk    uint64

	list listPlan // of a stream without a key

	gather    gather
	memCrypt  txLayer
	strip     txLayer
	protect   txLayer
	wireCrypt txLayer
	register  txRegister
}

// puller is a layer of a TX.
type puller interface {
	// pull fills p with the layer's stream from pos.
	pull(p []byte, pos uint64) error
	// view returns at most n bytes of the stream from pos in place. It returns nil if the
	// caller must pull.
	view(pos uint64, n int) ([]byte, error)
}

var txPool = sync.Pool{New: func() any { return new(txStream) }}

// openTX opens a stream. need is the right that the key must grant.
func (k *Key) openTX(offset, length uint64, need rdma.Access) (*txStream, error) {
	t := txPool.Get().(*txStream)
	if err := t.open(k, offset, length, need); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// openListTX opens a stream over a list of memory without a key.
func openListTX(l List, need rdma.Access) (keydoor.TX, error) {
	t := txPool.Get().(*txStream)
	p, n, err := t.list.set(l)
	if err == nil {
		err = t.start(nil, p, 0, n, need)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *txStream) open(k *Key, offset, length uint64, need rdma.Access) error {
	p, err := k.usable(need)
	if err == nil {
		offset, err = p.offset(offset)
	}
	if err != nil {
		return err
	}
	return t.start(k, p, offset, length, need)
}

func (t *txStream) start(k *Key, p *plan, offset, length uint64, need rdma.Access) error {
	t.length = length
	// A range that ends within a field of the wire is produced with the complete field; the
	// length of the stream hides the rest. An encrypted range cannot be extended, and does
	// not have to be: AES-XTS cannot process a job of that length.
	if g := &p.geo; g.wire.Field != 0 && (g.unit == 0 || g.unitInMemory) && length < maxStream && offset < maxStream {
		if r := (offset + length) % g.wire.Stride(); r > g.wire.Block {
			length += g.wire.Stride() - r
		}
	}
	if p.transaction != nil {
		var err error
		if length, err = p.transactionData(offset, length); err != nil {
			return err
		}
	}
	if err := t.transfer.open(k, p, offset, length, true, need); err != nil {
		return err
	}
	t.chunk, t.grain = t.bufferSize()
	t.gather.cursor = cursor{layout: p.layout, visit: &t.visit, need: t.need}
	t.top = &t.gather
	if p.transaction != nil {
		t.register = txRegister{below: t.top, transaction: p.transaction, from: t.span.mem0, end: t.span.mem1, pos: t.span.mem0}
		t.top = &t.register
	}
	if p.crypto != nil && p.geo.unitInMemory {
		t.memCrypt.crypt(t.top, &t.transfer, t.span.mem0, t.span.mem1)
		t.top = &t.memCrypt
	}
	if p.sig != nil {
		g := &p.geo
		if p.sig.tx.protect == nil {
			t.strip.sign(t.top, &t.transfer, p.sig.tx.strip, g.mem.Block, g.mem.Field, g.wire.Field)
			t.top = &t.strip
		} else {
			t.strip.sign(t.top, &t.transfer, p.sig.tx.strip, g.mem.Block, g.mem.Field, 0)
			t.protect.sign(&t.strip, &t.transfer, p.sig.tx.protect, g.wire.Block, 0, g.wire.Field)
			t.top = &t.protect
		}
	}
	if p.crypto != nil && !p.geo.unitInMemory {
		t.wireCrypt.crypt(t.top, &t.transfer, t.span.wire0, t.span.wire1)
		t.top = &t.wireCrypt
	}
	return nil
}

// Len returns the length of the stream in bytes.
func (t *txStream) Len() uint64 { return t.length }

// ReadAt implements keydoor.TX.
func (t *txStream) ReadAt(p []byte, off uint64) error {
	if off > t.length || uint64(len(p)) > t.length-off {
		return failure.New("mkey read", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the stream", off, len(p), t.length)
	}
	pos := t.span.wire0 + off
	for t.grain != 0 && len(p) > 0 {
		if err := t.live(t.key); err != nil {
			return err
		}
		if t.held == nil || pos < t.from || pos >= t.to {
			if uint64(len(p)) >= t.chunk || !t.readAhead(pos) {
				break
			}
		}
		n := copy(p, t.held[pos-t.from:t.to-t.from])
		p, pos = p[n:], pos+uint64(n)
		if pos == t.to {
			giveBack(&t.held)
		}
	}
	if len(p) == 0 {
		return nil
	}
	return t.pull(p, pos)
}

// pull reads memory.
func (t *txStream) pull(p []byte, pos uint64) error {
	if err := t.visit.begin(t.key); err != nil {
		return err
	}
	defer t.visit.end()
	return t.top.pull(p, pos)
}

// View implements keydoor.TX.
func (t *txStream) View(off uint64, n int) []byte {
	if t.grain == 0 || n > most || off > t.length || uint64(n) > t.length-off || t.live(t.key) != nil {
		return nil
	}
	pos := t.span.wire0 + off
	if (t.held == nil || pos < t.from || pos >= t.to) && !t.readAhead(pos) {
		return nil
	}
	if uint64(n) > t.to-pos && !t.extend(pos) {
		return nil
	}
	return t.held[pos-t.from:][:n:n]
}

// readAhead fills t.held from pos on. It returns false if memory could not be read, even
// if only memory after the requested bytes.
func (t *txStream) readAhead(pos uint64) bool {
	if t.held == nil {
		t.held = borrow()
	}
	start := t.span.wire0
	t.from = start + (pos-start)/t.grain*t.grain
	t.to = min(t.from+t.chunk, start+t.length)
	if t.pull(t.held[:t.to-t.from], t.from) != nil {
		giveBack(&t.held)
		return false
	}
	return true
}

// extend drops the bytes before pos from t.held and appends more bytes to the rest.
func (t *txStream) extend(pos uint64) bool {
	left := copy(t.held[:], t.held[pos-t.from:t.to-t.from])
	to := min(t.to+t.chunk, t.span.wire0+t.length)
	if t.pull(t.held[left:left+int(to-t.to)], t.to) != nil {
		giveBack(&t.held)
		return false
	}
	t.from, t.to = pos, to
	return true
}

// Bad returns the number of bad blocks found so far. The stream may have
// checked blocks that were not read yet.
func (t *txStream) Bad() int { return t.bad }

// Checked implements keydoor.TX: the number of the block before which every block was
// checked, or the mark of a transaction signature.
func (t *txStream) Checked() uint64 {
	switch {
	case t.plan == nil:
		return 0
	case t.plan.transaction != nil:
		return t.register.mark()
	case t.plan.sig == nil:
		return 0
	}
	return t.strip.checked()
}

// Close ends the stream, which must not be used any more.
func (t *txStream) Close() {
	t.transfer.close()
	giveBack(&t.held)
	t.length, t.top = 0, nil
	t.list.clear()
	t.gather.layout = nil
	t.memCrypt.close()
	t.strip.close()
	t.protect.close()
	t.wireCrypt.close()
	t.register = txRegister{}
	txPool.Put(t)
}

// gather is the lowest layer: it reads the memory domain.
type gather struct {
	cursor
	batch
}

func (g *gather) pull(p []byte, pos uint64) error {
	for len(p) > 0 {
		b, err := g.at(pos, uint64(len(p)))
		n := copy(p, b)
		if n == 0 && err == nil {
			n = int(g.visit.n)
			err = g.add(g.visit.space, g.visit.addr, p[:n])
		}
		if err != nil {
			g.drop()
			return err
		}
		p, pos = p[n:], pos+uint64(n)
	}
	return g.flush()
}

func (g *gather) view(pos uint64, n int) ([]byte, error) {
	return g.at(pos, uint64(n))
}

// txLayer does the work of a signature or of the crypto. Positions are positions in its output.
type txLayer struct {
	work
	below puller
	last  uint64 // end of the last block that is complete, or of the last unit, which may be short

	// one is the last output block or unit of which a reader has read a part. Its number is cached-1; if
	// cached is 0, there is none.
	one    []byte
	cached uint64
}

func (l *txLayer) sign(below puller, job *transfer, t *sig.Transform, block, inField, outField uint64) {
	l.work.sign(job, t, MemoryDomain, block, inField, outField)
	l.open(below, l.end*l.out)
}

func (l *txLayer) crypt(below puller, job *transfer, from, to uint64) {
	l.work.crypt(job, job.plan.crypto.EncryptOnTX, from, to)
	l.open(below, to)
}

func (l *txLayer) open(below puller, last uint64) {
	l.below, l.last = below, last
	l.one = grow(l.one, int(l.out))
	l.cached = 0
}

func (l *txLayer) close() { l.below, l.job, l.sig = nil, nil, nil }

func (l *txLayer) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txLayer) pull(p []byte, pos uint64) error {
	for len(p) > 0 {
		number, within := pos/l.out, pos%l.out
		size := min(l.out, l.last-number*l.out)
		var n uint64
		var err error
		switch {
		case number < l.first:
			// A first block that is not complete passes through.
			n = min(uint64(len(p)), l.out-within)
			err = l.below.pull(p[:n], number*l.in+within)
		case pos >= l.last:
			// An incomplete last block passes through too.
			n = uint64(len(p))
			err = l.below.pull(p, l.end*l.in+pos-l.last)
		case within != 0 || uint64(len(p)) < size:
			if err = l.load(number, size); err == nil {
				n = uint64(copy(p, l.one[within:size]))
			}
		default:
			n = min(uint64(len(p)), step/l.in*l.out, l.last-pos)
			if n < l.last-pos {
				n -= n % l.out
			}
			n, err = l.fill(p[:n], number)
		}
		if err != nil {
			return err
		}
		p, pos = p[n:], pos+n
	}
	return nil
}

// fill fills p with complete blocks or units from a number on, or a part of it, and returns the length of that part.
// The last unit may be short.
func (l *txLayer) fill(p []byte, number uint64) (uint64, error) {
	n := uint64(len(p))
	pos, from := number*l.in, n/l.out*l.in+n%l.out
	src, err := l.below.view(pos, int(from))
	switch {
	case err != nil:
		return 0, err
	case uint64(len(src)) == from:
	case len(src) >= max(direct, int(l.in)):
		count := uint64(len(src)) / l.in
		src, n = src[:count*l.in], count*l.out
	default:
		if src = p; l.sig != nil {
			buf := borrow()
			defer buffers.Put(buf)
			src = buf[:from]
		}
		if err := l.below.pull(src, pos); err != nil {
			return 0, err
		}
	}
	l.run(p[:n], src, number)
	return n, nil
}

// load fills l.one with an output block or unit.
func (l *txLayer) load(number, size uint64) error {
	if l.cached == number+1 {
		return nil
	}
	l.cached = 0
	if _, err := l.fill(l.one[:size], number); err != nil {
		return err
	}
	l.cached = number + 1
	return nil
}
