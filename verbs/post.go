package verbs

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// Chain is a list of send requests that is posted as a whole or not at all.
//
// Start begins it. ID, Signaled, Fence and Solicited describe the next request; a
// builder such as Send or Configure begins that request; setters such as SGE or Signature
// complete it. Complete posts the chain. A chain that is not completed has no effect. After an
// error, the rest of the chain is ignored, and Complete returns the error (ibv_wr_post(3),
// mlx5dv_wr_mkey_configure(3)).
//
// A Chain is a handle: copies of it refer to the same chain. It is not safe for concurrent
// use. After Complete it is finished: Complete then returns EINVAL, and other methods are
// ignored.
type Chain struct {
	b          *builder
	generation uint64
}

// builder holds the content of a Chain. Builders are pooled; the generation distinguishes
// the chains that use one after another.
type builder struct {
	generation atomic.Uint64

	qp   *QP
	err  error
	reqs []*engine.SendRequest

	id    uint64 // id of the next request
	flags ibv.SendFlags

	conf *engine.SendRequest // whose configuration is open, or nil
}

var builderPool = sync.Pool{New: func() any { return new(builder) }}

// Start begins a chain.
func (qp *QP) Start() Chain {
	b := builderPool.Get().(*builder)
	b.qp = qp
	return Chain{b, b.generation.Load()}
}

// open returns the builder of the chain, or nil if the chain is finished.
func (c Chain) open() *builder {
	if c.b == nil || c.b.generation.Load() != c.generation {
		return nil
	}
	return c.b
}

// ID sets the id of the next request.
func (c Chain) ID(id uint64) Chain {
	if b := c.open(); b != nil {
		b.id = id
	}
	return c
}

// Signaled requests a completion for the next request if it succeeds.
func (c Chain) Signaled() Chain { return c.flag(ibv.SendSignaled) }

// Fence makes the next request wait for earlier READs, atomics and signature results.
func (c Chain) Fence() Chain { return c.flag(ibv.SendFence) }

// Solicited requests a solicited event at the peer for the next request.
func (c Chain) Solicited() Chain { return c.flag(ibv.SendSolicited) }

func (c Chain) flag(f ibv.SendFlags) Chain {
	if b := c.open(); b != nil {
		b.flags |= f
	}
	return c
}

func (b *builder) fail(errno syscall.Errno, format string, args ...any) {
	if b.err == nil {
		b.err = failure.New("post send", errno, format, args...)
	}
}

// build begins a request; that of a finished chain is never posted. It resets
// the flags that Flags set, which apply to this request only.
func (c Chain) build(op ibv.WROp) *engine.SendRequest {
	b := c.open()
	if b == nil {
		return new(engine.SendRequest)
	}
	return b.build(op)
}

func (b *builder) build(op ibv.WROp) *engine.SendRequest {
	b.endConfigure()
	r := requestPool.Get().(*engine.SendRequest)
	r.Op, r.ID, r.Flags = op, b.id, b.flags
	b.id, b.flags = 0, 0
	b.reqs = append(b.reqs, r)
	return r
}

// Send begins a SEND.
func (c Chain) Send() Chain {
	c.build(ibv.WRSend)
	return c
}

// SendImm begins a SEND with immediate.
func (c Chain) SendImm(imm uint32) Chain {
	c.build(ibv.WRSendImm).Imm = imm
	return c
}

// SendInv begins a SEND that makes the peer invalidate its key rkey.
func (c Chain) SendInv(rkey uint32) Chain {
	c.build(ibv.WRSendInv).InvKey = rkey
	return c
}

// Write begins an RDMA WRITE to the peer's memory.
func (c Chain) Write(rkey uint32, remoteAddr uint64) Chain {
	r := c.build(ibv.WRWrite)
	r.RKey, r.RemoteAddr = rkey, remoteAddr
	return c
}

// WriteImm begins an RDMA WRITE with immediate, which consumes a receive request of the
// peer.
func (c Chain) WriteImm(rkey uint32, remoteAddr uint64, imm uint32) Chain {
	r := c.build(ibv.WRWriteImm)
	r.RKey, r.RemoteAddr, r.Imm = rkey, remoteAddr, imm
	return c
}

// Read begins an RDMA READ of the peer's memory.
func (c Chain) Read(rkey uint32, remoteAddr uint64) Chain {
	r := c.build(ibv.WRRead)
	r.RKey, r.RemoteAddr = rkey, remoteAddr
	return c
}

// CompareSwap begins an atomic operation: if the peer's 8 bytes equal compare, they
// become swap. The request's SGE, of 8 bytes, receives the old value. Values are in this
// machine's byte order.
func (c Chain) CompareSwap(rkey uint32, remoteAddr, compare, swap uint64) Chain {
	r := c.build(ibv.WRCmpSwap)
	r.RKey, r.RemoteAddr, r.CompareAdd, r.Swap = rkey, remoteAddr, compare, swap
	return c
}

// FetchAdd begins an atomic operation that adds to the peer's 8 bytes. The request's SGE,
// of 8 bytes, receives the old value.
func (c Chain) FetchAdd(rkey uint32, remoteAddr, add uint64) Chain {
	r := c.build(ibv.WRFetchAdd)
	r.RKey, r.RemoteAddr, r.CompareAdd = rkey, remoteAddr, add
	return c
}

// LocalInv begins a request that frees a memory key of this side. Transfers in progress
// through the key fail. When the request has completed, no request accesses memory
// through the key.
func (c Chain) LocalInv(lkey uint32) Chain {
	c.build(ibv.WRLocalInv).InvKey = lkey
	return c
}

// last returns the builder and the request that a setter belongs to, or nil after an
// error.
func (c Chain) last(setter string) (*builder, *engine.SendRequest) {
	b := c.open()
	if b == nil || b.err != nil {
		return b, nil
	}
	if len(b.reqs) == 0 || b.conf != nil {
		b.fail(syscall.EINVAL, "setter %s without the builder of a data request", setter)
		return b, nil
	}
	return b, b.reqs[len(b.reqs)-1]
}

// SGE sets the list of memory that the request uses.
func (c Chain) SGE(sges ...rdma.SGE) Chain {
	b, r := c.last("SGE")
	if r == nil {
		return c
	}
	var length uint64
	for _, s := range sges {
		length += uint64(s.Length)
	}
	switch {
	case r.Op == ibv.WRLocalInv:
		b.fail(syscall.EINVAL, "request %d: LOCAL_INV takes no data", r.ID)
	case hasData(r):
		b.fail(syscall.EINVAL, "request %d: its data is set already", r.ID)
	case len(sges) > b.qp.attr.MaxSendSGE:
		b.fail(syscall.EINVAL, "request %d has %d SGEs, the QP's limit is %d", r.ID, len(sges), b.qp.attr.MaxSendSGE)
	case length > roce.MaxMessage:
		b.fail(syscall.EINVAL, "request %d: %d bytes, a message has at most %d", r.ID, length, roce.MaxMessage)
	case isAtomic(r) && length != 8:
		b.fail(syscall.EINVAL, "request %d: the old value of an atomic takes 8 bytes, the list has %d", r.ID, length)
	default:
		r.SGEs = append(r.SGEs[:0], sges...)
	}
	return c
}

// hasData reports whether the data of a request was set. An empty list does not
// count, so SGE can then be called again.
func hasData(r *engine.SendRequest) bool { return r.HasInline || len(r.SGEs) > 0 }

func isAtomic(r *engine.SendRequest) bool { return r.Op == ibv.WRCmpSwap || r.Op == ibv.WRFetchAdd }

// Inline sets data that is copied at once, so that its memory can be reused immediately.
// It applies to SEND and WRITE, up to the QP's MaxInlineData.
func (c Chain) Inline(data ...[]byte) Chain {
	b, r := c.last("Inline")
	if r == nil {
		return c
	}
	switch r.Op {
	case ibv.WRSend, ibv.WRSendImm, ibv.WRSendInv, ibv.WRWrite, ibv.WRWriteImm:
	default:
		b.fail(syscall.EINVAL, "request %d: inline data goes with SEND and WRITE only", r.ID)
		return c
	}
	if hasData(r) {
		b.fail(syscall.EINVAL, "request %d: its data is set already", r.ID)
		return c
	}
	r.Inline = r.Inline[:0]
	for _, d := range data {
		r.Inline = append(r.Inline, d...)
	}
	if len(r.Inline) > b.qp.attr.MaxInlineData {
		b.fail(syscall.EINVAL, "request %d: %d bytes of inline data, the QP's max_inline_data is %d", r.ID, len(r.Inline), b.qp.attr.MaxInlineData)
	}
	r.HasInline = true
	return c
}

// To sets the destination of a datagram: the peer's address handle, its QP number and its
// Q_Key. A Q_Key with the highest bit set selects the QP's own (ibv_wr_set_ud_addr(3)).
func (c Chain) To(to *AddressHandle, qpn, qkey uint32) Chain {
	b, r := c.last("To")
	switch {
	case r == nil:
	case b.qp.attr.Type != rdma.UD:
		b.fail(syscall.EINVAL, "request %d: a QP of type %v has one peer, and takes no destination", r.ID, b.qp.attr.Type)
	case to == nil:
		b.fail(syscall.EINVAL, "request %d: no address handle", r.ID)
	case to.pd != b.qp.pd:
		b.fail(syscall.EINVAL, "request %d: an address handle of another protection domain", r.ID)
	case qpn >= 1<<24:
		b.fail(syscall.EINVAL, "request %d: QP number %#x: must fit 24 bits", r.ID, qpn)
	default:
		r.AH, r.RemoteQPN, r.QKey = to.ah, qpn, qkey
	}
	return c
}

// Complete posts the chain, or returns its first error. After an error nothing is posted,
// and the keys that the chain configures keep their configuration. Complete returns
// ENOMEM if the send queue has no room, and EINVAL if the chain is finished or if the
// QP's state does not allow send requests.
func (c Chain) Complete() error {
	b := c.open()
	if b == nil {
		return failure.New("post send", syscall.EINVAL, "the chain was completed before")
	}
	b.endConfigure()
	b.checkDestinations()
	err := b.err
	if err == nil {
		err = b.qp.post(b.reqs)
	}
	qp := b.qp
	if err == nil {
		b.reqs = b.reqs[:0] // the queue owns them now
	}
	b.release()
	if err == nil {
		qp.e.Post()
	}
	return err
}

// checkDestinations refuses datagrams without a destination.
func (b *builder) checkDestinations() {
	if b.qp.attr.Type != rdma.UD {
		return
	}
	for _, r := range b.reqs {
		switch r.Op {
		case ibv.WRSend, ibv.WRSendImm:
			if r.AH == nil {
				b.fail(syscall.EINVAL, "request %d: a datagram needs a destination, which To sets", r.ID)
			}
		}
	}
}

// release finishes the chain: from now on its handles are stale.
func (b *builder) release() {
	for i, r := range b.reqs {
		free(r)
		b.reqs[i] = nil
	}
	b.generation.Add(1)
	b.qp, b.err, b.reqs = nil, nil, b.reqs[:0]
	b.id, b.flags = 0, 0
	b.conf = nil
	builderPool.Put(b)
}
