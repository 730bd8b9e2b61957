package roce

import (
	"github.com/softmkey/softmkey/internal/ibv"
)

// READs in parts.
//
// A peer answers a READ request to its end, whatever is lost on the way, and neither the window nor a loss can stop it.
// While the window is not at its largest, a long READ is therefore sent as several requests, each for a part of the data. A part is a Work
// in the list like any other, has PSNs of its own, and counts as an outstanding READ. So the
// recovery from losses, RNR NAKs and the limit on outstanding READs need nothing special. The Handler
// sees one Work, which completes with its last part, or with the first part that fails.

// The peer's memory may be a key with signatures or encrypted data units. A READ from such a key must
// begin at the boundary of a block, and this side does not know the key. So each part after the first
// states that it continues the one before it (wire.ReadContinues). A responder of this package then opens
// the memory where the first part began, and needs no boundary.

// lowestDivided is the lowest remote address of a READ that is sent in parts. Below it the memory may be a key
// with blocks of an adapter, which does not know wire.ReadContinues: a part that begins within a block would end the
// connection with a remote access error. libmlx5, Linux's mlx5_ib and SPDK let the addresses of a key with blocks
// begin at 0, and such a key is shorter than 4 GiB. The addresses of a memory region are usually those of the
// program, which on 64-bit machines are higher. A program that gives a key of an adapter a higher address needs
// commands of its own for that; it must read such a key in short READs.
const lowestDivided = 1 << 32

// divides reports whether w, which is about to begin, is to be sent in parts. Where packets pass through memory
// (near, ring), none are lost, and no READ is divided. Those of a DCI are not: it
// takes a Work before it has a connection to the Work's target, so that nothing is known of the path.
func (q *QP) divides(w *Work) bool {
	return w.Op == ibv.WRRead && q.acknowledged() && !q.near && !q.ring && q.dci == nil &&
		w.RemoteAddr >= lowestDivided && w.progress.count > q.partLength()
}

// continues reports whether the Work is a part of a READ after the first one.
func (p *progress) continues() bool { return p.whole != nil && p.first != p.whole.progress.first }

// partLength returns the number of responses of the next part of a READ.
func (q *QP) partLength() uint32 {
	return uint32(min(q.peer.in.part(q.fullCost(), int64(q.maxReads())), maxResponses))
}

// beginPart appends the next part of the READ that is sent in parts to the list.
func (q *QP) beginPart() *Work {
	r := &q.req
	w := r.whole
	i := w.index(r.end)
	n := min(w.progress.count-i, q.partLength())
	p := new(Work)
	*p = *w
	p.progress = progress{first: r.end, count: n, whole: w}
	p.RemoteAddr += uint64(q.bytes(w, 0, i))
	p.Length = uint32(q.bytes(w, i, i+n))
	if i+n == w.progress.count {
		r.whole = nil
	}
	r.add(p)
	return p
}

// leastPart is the smallest number of responses that one request asks for, unless fewer are left, and mostParts the
// number of parts of a window.
const (
	leastPart = 4
	mostParts = 4
)
