package mkey

import (
	"slices"
	"sort"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// transfer is the common part of both directions: a range of a key's wire domain, under the
// configuration that was in force when it was opened.
type transfer struct {
	visit
	key    *Key        // nil: a list of memory without a key
	need   rdma.Access // right that the memory must grant
	copied bool        // some of the memory can only be copied
	span   span
	cipher *xts.Cipher
	bad    int
}

// open checks the whole transfer and holds the DEK until close. need is the
// right that the key must grant or, without a key, the memory.
func (t *transfer) open(k *Key, p *plan, offset, length uint64, exact bool, need rdma.Access) (err error) {
	t.key, t.plan, t.remote = k, p, need&(rdma.RemoteRead|rdma.RemoteWrite) != 0
	t.need = need
	if k != nil {
		t.need = below(need)
	}
	if t.span, err = p.geo.span(offset, length, exact); err != nil {
		return err
	}
	if k != nil && t.span.mem1 > p.layout.total { // in the caller's domain: the layout's error has positions in memory
		return failure.New("mkey access", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of the key's wire domain", offset, length, p.geo.wireLength(p.layout.total))
	}
	if t.copied, err = p.layout.check(t.span.mem0, t.span.mem1-t.span.mem0, t.need, 1); err != nil {
		return err
	}
	switch {
	case p.crypto != nil:
		return t.acquire(p.crypto)
	case k != nil && k.flags&CryptoOffload != 0:
		return failure.New("mkey access", syscall.EINVAL, "key %#x was created with CryptoOffload and has no crypto attributes: they must be set before it is used", k.num())
	}
	return nil
}

func (t *transfer) acquire(c *Crypto) error {
	cipher, err := c.DEK.Acquire(c.KeyTag)
	switch {
	case err != nil:
		return err
	case cipher == nil:
		c.DEK.Release()
		return failure.New("mkey access", syscall.EINVAL, "the DEK gave no cipher")
	}
	t.cipher = cipher
	return nil
}

// listPlan is the plan, and its storage, of a stream over a list of memory
// without a key.
type listPlan struct {
	plan
	layout layout // its pieces are overwritten by the next list
}

// set makes l the layout and returns the plan and the list's length.
func (p *listPlan) set(l List) (*plan, uint64, error) {
	err := l.compileTo(&p.layout)
	p.plan.layout = &p.layout
	return &p.plan, p.layout.total, err
}

// clear drops the references to the memory.
func (p *listPlan) clear() {
	clear(p.layout.pieces)
	p.layout.pieces = p.layout.pieces[:0]
}

// close ends the transfer. The slice of tenures is kept for the next use of the
// pooled stream.
func (t *transfer) close() {
	if t.cipher != nil {
		t.plan.crypto.DEK.Release()
	}
	t.key, t.plan, t.cipher, t.bad = nil, nil, nil, 0
}

// work is the work of one layer: a signature transform over blocks of one size, or encryption or decryption
// of data units. It has the positions of the blocks or units in the layer's input and output, and reports bad
// blocks to the key.
type work struct {
	job        *transfer
	sig        *sig.Transform // nil: the crypto
	encrypt    bool
	domain     Domain // the input domain
	size       int    // bytes of data in a block or unit
	in, out    uint64 // strides of input and output
	first, end uint64 // the complete blocks, or the units, are numbers first..end-1
	seen       ranges // blocks that were checked before and are not reported again
}

// sign opens the work on blocks.
func (w *work) sign(job *transfer, t *sig.Transform, domain Domain, size, inField, outField uint64) {
	*w = work{
		job: job, sig: t, domain: domain, size: int(size),
		in: size + inField, out: size + outField,
		first: (job.span.data0 + size - 1) / size,
		end:   job.span.whole / size,
		seen:  w.seen[:0],
	}
}

// crypt opens the work on the data units between two positions of the encrypted stream.
func (w *work) crypt(job *transfer, encrypt bool, from, to uint64) {
	unit := uint64(job.plan.crypto.DataUnitSize)
	*w = work{job: job, encrypt: encrypt, size: int(unit), in: unit, out: unit, first: from / unit, end: (to + unit - 1) / unit, seen: w.seen[:0]}
}

// run runs the complete blocks or units in src to dst, of which the last unit may be short. number is that of
// the first.
func (w *work) run(dst, src []byte, number uint64) {
	if w.sig == nil {
		crypt := w.job.cipher.Decrypt
		if w.encrypt {
			crypt = w.job.cipher.Encrypt
		}
		crypt(dst, src, w.size, w.job.plan.crypto.InitialTweak.Add(number))
		return
	}
	count := uint64(len(src)) / w.in
	w.sig.Run(w.blocksIn(dst, w.out), w.blocksIn(src, w.in), int(count), number, w.record)
	w.seen.add(number, number+count)
}

// blocksIn returns the blocks in buf, stride bytes apart, with their fields.
func (w *work) blocksIn(buf []byte, stride uint64) sig.Blocks {
	r := sig.Blocks{Data: buf, DataStride: int(stride)}
	if int(stride) > w.size {
		r.Fields, r.FieldStride = buf[w.size:], int(stride)
	}
	return r
}

// record records a bad block that was not checked before.
func (w *work) record(e sig.Error) bool {
	if !w.seen.has(e.Block) {
		w.job.bad++
		w.job.key.record(e, w.domain)
	}
	return true
}

// checkedBefore marks the blocks before a number as checked, because an earlier
// stream over the same range has checked them.
func (w *work) checkedBefore(number uint64) {
	if number > w.first {
		w.seen.add(w.first, number)
	}
}

// checked returns the number of the block before which every block was checked.
func (w *work) checked() uint64 {
	if len(w.seen) == 0 || w.seen[0].from > w.first {
		return 0
	}
	return w.seen[0].to
}

// ranges is a set of numbers, as disjoint ranges in rising order with gaps between them. A
// stream that is read in order has one range.
type ranges []struct{ from, to uint64 }

// after returns the index of the first range that ends after n.
func (r ranges) after(n uint64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].to > n })
}

func (r ranges) has(n uint64) bool {
	i := r.after(n)
	return i < len(r) && r[i].from <= n
}

// add adds the numbers from..to-1 to the set.
func (r *ranges) add(from, to uint64) {
	if last := len(*r) - 1; last >= 0 && (*r)[last].from <= from && from <= (*r)[last].to {
		(*r)[last].to = max((*r)[last].to, to) // the common case: sequential reading
		return
	}
	i := 0
	if from > 0 {
		i = r.after(from - 1) // the first range that touches from or lies after it
	}
	j := i
	for ; j < len(*r) && (*r)[j].from <= to; j++ {
		from, to = min(from, (*r)[j].from), max(to, (*r)[j].to)
	}
	*r = slices.Replace(*r, i, j, struct{ from, to uint64 }{from, to})
}

const (
	// step is the number of bytes that a layer processes at a time: enough for the
	// kernels to reach their speed, and few enough to stay in the first two caches.
	step = 32 << 10

	// direct is the length from which a contiguous piece of memory is processed in place.
	// Shorter pieces are gathered first: one kernel call over a long run saves more time
	// than the copy takes.
	direct = 4 << 10

	// most is the largest piece that View or Place returns: at least the payload of a
	// packet, which is 8896 bytes where two softmkey devices agree on it, and small enough
	// to share one buffer with the read-ahead.
	most = 9 << 10
)

// buffer has room for a step, and for the fields of its blocks or the end of
// the previous step.
type buffer [step + most]byte

// buffers are shared by all streams, so that a stream that waits, for a slow peer for
// example, holds at most one.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func borrow() *buffer { return buffers.Get().(*buffer) }

// giveBack returns the buffer in *b to the pool. *b may be nil.
func giveBack(b **buffer) {
	if *b != nil {
		loan.End((*b)[:])
		buffers.Put(*b)
		*b = nil
	}
}

// grain returns the unit of processing in the wire domain: a block with its field, or a data
// unit. 0: there is nothing to process.
func (p *plan) grain() uint64 {
	switch {
	case p.crypto != nil && (p.sig == nil || !p.geo.unitInMemory):
		return p.geo.unit
	case p.sig != nil:
		return p.geo.wire.Stride()
	}
	return 0
}

// bufferSize returns the size of the read-ahead or write-behind, a multiple of
// the grain, and the grain; or 0 if the stream has none. It is a step, because a call of the
// layers, of the kernels and of a Space costs as much as several hundred bytes.
func (t *transfer) bufferSize() (size, grain uint64) {
	switch grain = t.plan.grain(); {
	case grain != 0:
		return step / grain * grain, grain
	case t.copied:
		return step, 1
	}
	return 0, 0
}

// grow returns b with a length of n bytes, or a new slice if b is too short. The content is
// undefined.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
