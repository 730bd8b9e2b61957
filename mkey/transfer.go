package mkey

import (
	"slices"
	"sort"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// transfer is what the two directions have in common: a range of a key under
// the configuration that was in force when it was opened.
type transfer struct {
	visit
	key    *Key   // nil: a list of memory without a key
	need   Access // that the memory must grant
	copied bool   // some of the memory can only be copied
	span   span
	cipher *xts.Cipher
	bad    int
}

// open checks the transfer as a whole and holds the DEK until close. need is the right
// that the key must grant.
func (t *transfer) open(k *Key, p *plan, offset, length uint64, exact bool, need Access) (err error) {
	t.key, t.plan, t.remote = k, p, need&(RemoteRead|RemoteWrite) != 0
	t.need = need
	if k != nil {
		t.need = below(need)
	}
	if t.span, err = p.geo.span(offset, length, exact); err != nil {
		return err
	}
	if t.copied, err = p.layout.check(t.span.mem0, t.span.mem1-t.span.mem0, t.need, 1); err != nil {
		return err
	}
	switch {
	case p.crypto != nil:
		return t.acquire(p.crypto)
	case k != nil && k.flags&CryptoOffload != 0:
		return operr.New("mkey access", syscall.EINVAL, "key %#x was created with CryptoOffload and has no crypto attributes: they must be set before it is used", k.Number())
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
		return operr.New("mkey access", syscall.EINVAL, "the DEK gave no cipher")
	}
	t.cipher = cipher
	return nil
}

// listPlan is the plan of a stream over a list of memory without a key.
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

// clear lets go of the memory.
func (p *listPlan) clear() {
	clear(p.layout.pieces)
	p.layout.pieces = p.layout.pieces[:0]
}

// close ends the transfer. The room for tenures stays with the pooled stream.
func (t *transfer) close() {
	if t.cipher != nil {
		t.plan.crypto.DEK.Release()
	}
	t.key, t.plan, t.cipher, t.bad = nil, nil, nil, 0
}

// crypt encrypts or decrypts the units in src, the first of that number.
func (t *transfer) crypt(encrypt bool, dst, src []byte, unit, number uint64) {
	tweak := t.plan.crypto.InitialTweak.Add(number)
	if encrypt {
		t.cipher.Encrypt(dst, src, int(unit), tweak)
	} else {
		t.cipher.Decrypt(dst, src, int(unit), tweak)
	}
}

// blocks is the grid of one signature layer: where its whole blocks stand in
// the streams before and behind it. It reports the bad ones to the key.
type blocks struct {
	job        *transfer
	domain     Domain // the input
	size       int
	in, out    uint64 // strides
	first, end uint64 // numbers of the whole blocks: first..end-1
	seen       ranges // blocks that were checked before and are not reported again
}

func (b *blocks) open(job *transfer, domain Domain, size, inField, outField uint64) {
	*b = blocks{
		job: job, domain: domain, size: int(size),
		in: size + inField, out: size + outField,
		first: (job.span.data0 + size - 1) / size,
		end:   job.span.whole / size,
		seen:  b.seen[:0],
	}
}

// transform runs count whole blocks, the first of that number, from src to dst.
func (b *blocks) transform(t *sig.Transform, dst, src []byte, number, count uint64) {
	t.Run(b.run(dst, b.out), b.run(src, b.in), int(count), number, b)
	b.seen.add(number, number+count)
}

// run describes blocks stride apart in buf to the kernels.
func (b *blocks) run(buf []byte, stride uint64) sig.Blocks {
	r := sig.Blocks{Data: buf, DataStride: int(stride)}
	if int(stride) > b.size {
		r.Fields, r.FieldStride = buf[b.size:], int(stride)
	}
	return r
}

// BadBlock implements sig.Reporter.
func (b *blocks) BadBlock(e sig.Error) bool {
	if !b.seen.has(e.Block) {
		b.job.bad++
		b.job.key.record(e, b.domain)
	}
	return true
}

// ranges is a set of numbers: disjoint ranges in rising order that do not touch. A
// stream that is read in order, with or without going back, has one.
type ranges []struct{ from, to uint64 }

// after returns the index of the first range that ends behind n.
func (r ranges) after(n uint64) int {
	return sort.Search(len(r), func(i int) bool { return r[i].to > n })
}

func (r ranges) has(n uint64) bool {
	i := r.after(n)
	return i < len(r) && r[i].from <= n
}

// add puts from..to-1 into the set.
func (r *ranges) add(from, to uint64) {
	if last := len(*r) - 1; last >= 0 && (*r)[last].from <= from && from <= (*r)[last].to {
		(*r)[last].to = max((*r)[last].to, to) // reading on, or going back a little
		return
	}
	i := 0
	if from > 0 {
		i = r.after(from - 1) // the first that reaches from, or lies behind it
	}
	j := i
	for ; j < len(*r) && (*r)[j].from <= to; j++ {
		from, to = min(from, (*r)[j].from), max(to, (*r)[j].to)
	}
	*r = slices.Replace(*r, i, j, struct{ from, to uint64 }{from, to})
}

const (
	// step is how many bytes the layers work on at a time: large enough for the
	// kernels to reach their speed, small enough to stay in the first two caches.
	step = 32 << 10

	// direct is how long a contiguous piece must be to be worked on where it
	// stands. Shorter ones are gathered first: a kernel call over a long run
	// saves more than the copy costs.
	direct = 4 << 10

	// ahead is the size of the read-ahead and the write-behind. For memory that can only
	// be copied it is a step: one call of a Space costs more than a kilobyte of copying.
	ahead = 16 << 10

	// most is the largest piece that View or Place returns: larger than a packet, and
	// small enough to share one buffer with the read-ahead.
	most = 8 << 10
)

// buffer is memory for a step with the fields that its blocks may get, or with the end of
// the step before.
type buffer [step + most]byte

// buffers are shared by all streams, so that one which waits, for a slow peer
// perhaps, holds little.
var buffers = sync.Pool{New: func() any { return new(buffer) }}

func borrow() *buffer { return buffers.Get().(*buffer) }

// giveBack takes a buffer out of *b, if there is one there.
func giveBack(b **buffer) {
	if *b != nil {
		buffers.Put(*b)
		*b = nil
	}
}

// grain returns what the wire domain of a configuration is made of: blocks with
// their fields, or data units. 0 means bytes.
func (p *plan) grain() uint64 {
	switch {
	case p.crypto != nil && (p.sig == nil || !p.geo.unitInMemory):
		return p.geo.unit
	case p.sig != nil:
		return p.geo.wire.Stride()
	}
	return 0
}

// bufferSize returns the size of the read-ahead or write-behind, a multiple of the grain,
// and the grain; 0: the stream has none.
func (t *transfer) bufferSize() (size, grain uint64) {
	grain = t.plan.grain()
	switch {
	case t.copied && grain == 0:
		return step, 1
	case t.copied:
		return step / grain * grain, grain
	case grain == 0:
		return 0, 0
	}
	return ahead / grain * grain, grain
}

// grow returns b with room for n bytes; their content is undefined.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
