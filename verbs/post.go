package verbs

import (
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
)

// Chain is a list of send requests that is posted as a whole, or not at all.
//
// Start begins it. ID, Signaled, Fence, Solicited and Flags describe the next
// request; a builder such as Send or Configure begins that request; setters such
// as SGE or Signature complete it. Complete posts the chain, Abort drops it. The
// first error is kept, the rest of the chain is ignored, and Complete returns it
// (ibv_wr_post(3), mlx5dv_wr_mkey_configure(3)).
//
// A Chain is not safe for concurrent use and must not be used after Complete or
// Abort.
type Chain struct {
	qp   *QP
	err  error
	reqs []*request

	id       uint64 // of the next request
	flags    SendFlags
	explicit bool // Flags was called: SendInline is the caller's to set

	conf *confBuilder // of the configuration that is open
	own  confBuilder
}

// confBuilder collects the setters of one configuration.
type confBuilder struct {
	req    *request
	conf   mkey.Update
	access Access
	want   int // setters announced, -1: as many as come
	have   int
}

var chainPool = sync.Pool{New: func() any { return new(Chain) }}

// Start begins a chain.
func (qp *QP) Start() *Chain {
	c := chainPool.Get().(*Chain)
	c.qp = qp
	return c
}

// ID sets the id of the next request.
func (c *Chain) ID(id uint64) *Chain { c.id = id; return c }

// Signaled makes the next request give a completion when it succeeds.
func (c *Chain) Signaled() *Chain { c.flags |= SendSignaled; return c }

// Fence makes the next request wait for earlier reads, atomics and signature
// results.
func (c *Chain) Fence() *Chain { c.flags |= SendFence; return c }

// Solicited makes the next request ask for a solicited event at the peer.
func (c *Chain) Solicited() *Chain { c.flags |= SendSolicited; return c }

// Flags sets all flags of the next request: the long way. A configuration then
// needs SendInline.
func (c *Chain) Flags(f SendFlags) *Chain { c.flags, c.explicit = f, true; return c }

func (c *Chain) fail(errno syscall.Errno, format string, args ...any) *Chain {
	if c.err == nil {
		c.err = operr.New("post send", errno, format, args...)
	}
	return c
}

// build begins a request.
func (c *Chain) build(kind requestKind, opcode Opcode, op roce.Op) *request {
	c.endConfigure()
	r := newRequest()
	r.kind, r.opcode, r.work.Op = kind, opcode, op
	r.id, r.flags = c.id, c.flags
	r.work.Solicited = c.flags&SendSolicited != 0
	c.id, c.flags = 0, 0
	if bad := r.flags &^ (SendFence | SendSignaled | SendSolicited | SendInline); bad != 0 {
		c.fail(syscall.EINVAL, "request %d: send flags %#x are not known", r.id, uint32(bad))
	}
	c.reqs = append(c.reqs, r)
	return r
}

// Send begins a SEND.
func (c *Chain) Send() *Chain {
	c.build(kindSource, OpSend, roce.OpSend)
	return c.next()
}

// SendImm begins a SEND with immediate.
func (c *Chain) SendImm(imm uint32) *Chain {
	c.build(kindSource, OpSend, roce.OpSendImm).work.Imm = imm
	return c.next()
}

// SendInv begins a SEND that makes the peer invalidate its key rkey.
func (c *Chain) SendInv(rkey uint32) *Chain {
	c.build(kindSource, OpSend, roce.OpSendInv).work.InvKey = rkey
	return c.next()
}

// Write begins an RDMA WRITE to the peer's memory.
func (c *Chain) Write(rkey uint32, remoteAddr uint64) *Chain {
	c.build(kindSource, OpRDMAWrite, roce.OpWrite).remote(rkey, remoteAddr)
	return c.next()
}

// WriteImm begins an RDMA WRITE with immediate, which uses up a receive request of
// the peer.
func (c *Chain) WriteImm(rkey uint32, remoteAddr uint64, imm uint32) *Chain {
	r := c.build(kindSource, OpRDMAWrite, roce.OpWriteImm)
	r.remote(rkey, remoteAddr)
	r.work.Imm = imm
	return c.next()
}

// Read begins an RDMA READ of the peer's memory.
func (c *Chain) Read(rkey uint32, remoteAddr uint64) *Chain {
	c.build(kindSink, OpRDMARead, roce.OpRead).remote(rkey, remoteAddr)
	return c.next()
}

// CompareSwap begins an atomic: if the peer's 8 bytes hold compare they become swap. What stood
// there goes to the request's SGE, of 8 bytes. Values are in this machine's order.
func (c *Chain) CompareSwap(rkey uint32, remoteAddr, compare, swap uint64) *Chain {
	r := c.build(kindAtomic, OpCompSwap, roce.OpCmpSwap)
	r.remote(rkey, remoteAddr)
	r.work.CompareAdd, r.work.Swap = compare, swap
	return c.next()
}

// FetchAdd begins an atomic that adds to the peer's 8 bytes. What stood there goes
// to the request's SGE, of 8 bytes.
func (c *Chain) FetchAdd(rkey uint32, remoteAddr, add uint64) *Chain {
	r := c.build(kindAtomic, OpFetchAdd, roce.OpFetchAdd)
	r.remote(rkey, remoteAddr)
	r.work.CompareAdd = add
	return c.next()
}

// LocalInv begins a request that frees a memory key of this side.
func (c *Chain) LocalInv(lkey uint32) *Chain {
	c.build(kindInvalidate, OpLocalInv, roce.OpLocal).invalidate = lkey
	return c.next()
}

// next ends a builder: Flags was for this request only.
func (c *Chain) next() *Chain {
	c.explicit = false
	return c
}

// last returns the request that a setter belongs to, or nil after an error.
func (c *Chain) last(setter string) *request {
	if c.err != nil {
		return nil
	}
	if len(c.reqs) == 0 || c.conf != nil {
		c.fail(syscall.EINVAL, "setter %s without the builder of a data request", setter)
		return nil
	}
	return c.reqs[len(c.reqs)-1]
}

// SGE sets the list of memory that the request uses.
func (c *Chain) SGE(sges ...SGE) *Chain {
	r := c.last("SGE")
	if r == nil {
		return c
	}
	switch {
	case r.kind == kindInvalidate:
		return c.fail(syscall.EINVAL, "request %d: LOCAL_INV takes no data", r.id)
	case r.hasData:
		return c.fail(syscall.EINVAL, "request %d: its data is set already", r.id)
	case len(sges) > c.qp.attr.MaxSendSGE:
		return c.fail(syscall.EINVAL, "request %d has %d SGEs, the QP's limit is %d", r.id, len(sges), c.qp.attr.MaxSendSGE)
	}
	var length uint64
	for _, s := range sges {
		length += uint64(s.Length)
	}
	switch {
	case length > roce.MaxMessage:
		return c.fail(syscall.EINVAL, "request %d: %d bytes, a message has at most %d", r.id, length, uint32(roce.MaxMessage))
	case r.kind == kindAtomic && length != 8:
		return c.fail(syscall.EINVAL, "request %d: an atomic's result takes 8 bytes, the list has %d", r.id, length)
	}
	r.hasData = true
	r.sges = append(r.sges[:0], sges...)
	r.work.Length = uint32(length)
	return c
}

// Inline sets data that is copied now, so that its memory can be used again at
// once. It is for SEND and WRITE, up to the QP's MaxInlineData.
func (c *Chain) Inline(data ...[]byte) *Chain {
	r := c.last("Inline")
	if r == nil {
		return c
	}
	switch {
	case r.kind != kindSource:
		return c.fail(syscall.EINVAL, "request %d: inline data goes with SEND and WRITE only", r.id)
	case r.hasData:
		return c.fail(syscall.EINVAL, "request %d: its data is set already", r.id)
	}
	for _, d := range data {
		r.inline = append(r.inline, d...)
	}
	if len(r.inline) > c.qp.attr.MaxInlineData {
		return c.fail(syscall.EINVAL, "request %d: %d bytes of inline data, the QP's max_inline_data is %d", r.id, len(r.inline), c.qp.attr.MaxInlineData)
	}
	r.hasData, r.isInline = true, true
	r.work.Length = uint32(len(r.inline))
	return c
}

// Complete posts the chain and returns its first error; then nothing of it is
// posted, and keys that it configures must be configured again in full. ENOMEM
// says that the send queue has no room, EINVAL that the QP is in a state in which
// it takes no send requests.
func (c *Chain) Complete() error {
	c.endConfigure()
	err := c.err
	if err == nil {
		err = c.qp.post(c.reqs)
	}
	if err != nil {
		c.release()
		return err
	}
	qp := c.qp
	c.reqs = c.reqs[:0] // they are the queue's now
	c.release()
	qp.rc.Kick()
	return nil
}

// Abort drops the chain. Keys that it configures must be configured again in full.
func (c *Chain) Abort() { c.release() }

func (c *Chain) release() {
	for _, r := range c.reqs {
		r.free()
	}
	*c = Chain{reqs: c.reqs[:0]}
	chainPool.Put(c)
}

// PostRecv queues receive requests and returns how many, with the error that
// stopped it: EINVAL for a QP in RESET or with an SRQ and for too many SGEs,
// ENOMEM when the queue is full.
func (qp *QP) PostRecv(wrs ...RecvWR) (int, error) {
	const op = "post receive"
	if qp.attr.SRQ != nil {
		return 0, operr.New(op, syscall.EINVAL, "the QP takes its receive requests from an SRQ")
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if qp.state == StateReset || qp.closed {
		return 0, operr.New(op, syscall.EINVAL, "the QP is in %v", qp.state)
	}
	n, err := qp.rq.post(op, wrs)
	if qp.state == StateErr {
		qp.flushRecv()
	}
	return n, err
}
