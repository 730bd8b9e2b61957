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
	memCrypt  txCrypt
	strip     txSig
	protect   txSig
	wireCrypt txCrypt
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
		t.memCrypt.open(t.top, &t.transfer, t.span.mem1)
		t.top = &t.memCrypt
	}
	if p.sig != nil {
		g := &p.geo
		if p.sig.tx.protect == nil {
			t.strip.open(t.top, &t.transfer, p.sig.tx.strip, g.mem.Block, g.mem.Field, g.wire.Field)
			t.top = &t.strip
		} else {
			t.strip.open(t.top, &t.transfer, p.sig.tx.strip, g.mem.Block, g.mem.Field, 0)
			t.protect.open(&t.strip, &t.transfer, p.sig.tx.protect, g.wire.Block, 0, g.wire.Field)
			t.top = &t.protect
		}
	}
	if p.crypto != nil && !p.geo.unitInMemory {
		t.wireCrypt.open(t.top, &t.transfer, t.span.wire1)
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
	return t.strip.blocks.checked()
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

// txCrypt encrypts or decrypts a stream in data units.
type txCrypt struct {
	below   puller
	job     *transfer
	encrypt bool
	unit    uint64
	end     uint64 // end of the stream; the last unit may be short

	// one is the last unit of which a reader has read a part. Its number is
	// cached-1; if cached is 0, there is none.
	one    []byte
	cached uint64
}

func (l *txCrypt) open(below puller, job *transfer, end uint64) {
	c := job.plan.crypto
	l.below, l.job, l.end = below, job, end
	l.encrypt, l.unit = c.EncryptOnTX, uint64(c.DataUnitSize)
	l.one = grow(l.one, c.DataUnitSize)
	l.cached = 0
}

func (l *txCrypt) close() { l.below, l.job = nil, nil }

func (l *txCrypt) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txCrypt) pull(p []byte, pos uint64) error {
	for len(p) > 0 {
		number, within := pos/l.unit, pos%l.unit
		size := min(l.unit, l.end-number*l.unit)
		if within != 0 || uint64(len(p)) < size {
			if err := l.load(number, size); err != nil {
				return err
			}
			n := copy(p, l.one[within:size])
			p, pos = p[n:], pos+uint64(n)
			continue
		}
		n := min(uint64(len(p)), step/l.unit*l.unit, l.end-pos)
		if n < l.end-pos {
			n -= n % l.unit
		}
		src, err := l.below.view(pos, int(n))
		switch {
		case err != nil:
			return err
		case uint64(len(src)) == n:
		case len(src) >= max(direct, int(l.unit)):
			n = uint64(len(src)) / l.unit * l.unit
			src = src[:n]
		default:
			src = p[:n]
			if err := l.below.pull(src, pos); err != nil {
				return err
			}
		}
		l.job.crypt(l.encrypt, p[:n], src, l.unit, number)
		p, pos = p[n:], pos+n
	}
	return nil
}

// load fills l.one with a unit.
func (l *txCrypt) load(number, size uint64) error {
	if l.cached == number+1 {
		return nil
	}
	l.cached = 0
	one := l.one[:size]
	if err := l.below.pull(one, number*l.unit); err != nil {
		return err
	}
	l.job.crypt(l.encrypt, one, one, l.unit, number)
	l.cached = number + 1
	return nil
}

// txSig runs one signature transform over blocks of one size. Positions are positions in
// its output.
type txSig struct {
	below  puller
	job    *transfer
	sig    *sig.Transform
	blocks blocks

	// one is the last output block of which a reader has read a part. Its
	// number is cached-1; if cached is 0, there is none.
	one    []byte
	cached uint64
}

func (l *txSig) open(below puller, job *transfer, t *sig.Transform, block, inField, outField uint64) {
	l.below, l.job, l.sig = below, job, t
	l.blocks.open(job, MemoryDomain, block, inField, outField)
	l.one = grow(l.one, int(l.blocks.out))
	l.cached = 0
}

func (l *txSig) close() { l.below, l.job, l.sig = nil, nil, nil }

func (l *txSig) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txSig) pull(p []byte, pos uint64) error {
	b := &l.blocks
	for len(p) > 0 {
		number, within := pos/b.out, pos%b.out
		var n uint64
		var err error
		switch {
		case number < b.first:
			// A first block that is not complete passes through.
			n = min(uint64(len(p)), b.out-within)
			err = l.below.pull(p[:n], number*b.in+within)
		case number >= b.end:
			// An incomplete last block passes through too.
			n = uint64(len(p))
			err = l.below.pull(p, b.end*b.in+pos-b.end*b.out)
		case within != 0 || uint64(len(p)) < b.out:
			if err = l.load(number); err == nil {
				n = uint64(copy(p, l.one[within:b.out]))
			}
		default:
			count := min(uint64(len(p))/b.out, b.end-number, step/b.in)
			count, err = l.transform(p, number, count)
			n = count * b.out
		}
		if err != nil {
			return err
		}
		p, pos = p[n:], pos+n
	}
	return nil
}

// transform writes at most count > 0 complete blocks to p, from block number on, and
// returns how many it wrote.
func (l *txSig) transform(p []byte, number, count uint64) (uint64, error) {
	b := &l.blocks
	pos, n := number*b.in, count*b.in
	src, err := l.below.view(pos, int(n))
	switch {
	case err != nil:
		return 0, err
	case uint64(len(src)) == n:
	case len(src) >= max(direct, int(b.in)):
		count = uint64(len(src)) / b.in
	default:
		buf := borrow()
		defer buffers.Put(buf)
		src = buf[:n]
		if err := l.below.pull(src, pos); err != nil {
			return 0, err
		}
	}
	b.transform(l.sig, p, src, number, count)
	return count, nil
}

// load fills l.one with an output block.
func (l *txSig) load(number uint64) error {
	if l.cached == number+1 {
		return nil
	}
	l.cached = 0
	if _, err := l.transform(l.one, number, 1); err != nil {
		return err
	}
	l.cached = number + 1
	return nil
}
