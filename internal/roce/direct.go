package roce

import (
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// minDirect is the payload length from which the transport copies directly between
// application memory and packet buffers, in the pass that computes the packet's CRC.
// Below it, the extra steps cost more than the second pass.
const minDirect = 256

// view returns n bytes of the message in application memory, or nil if src is
// no Viewer or n is small.
func view(src Source, off uint64, n int) []byte {
	if v, ok := src.(Viewer); ok && n >= minDirect {
		return v.View(off, n)
	}
	return nil
}

// seal completes packet p, whose headers take head bytes, with padding and CRC. The
// payload of n bytes is copied from memory, or is already in the packet if memory is nil.
func (q *endpoint) seal(p []byte, id uint16, head, n int, memory []byte) {
	if memory != nil && !q.near && !q.ring {
		q.flow.Front(len(p)).WithID(id).Fill(p, head, memory)
		return
	}
	copy(p[head:head+n], memory)
	clear(p[head+n : len(p)-wire.ICRCLen])
	q.finish(p, id)
}

// finish completes packet p with its CRC.
func (q *endpoint) finish(p []byte, id uint16) {
	switch {
	case q.near:
	case q.ring:
		clear(p[len(p)-wire.ICRCLen:])
	default:
		q.flow.Front(len(p)).WithID(id).PutICRC(p)
	}
}

// check verifies the CRC of packet b, which was parsed as k. If place finds the payload's
// destination, the same pass copies the payload there; k.place is then set. It also
// returns the packet's IPv4 identification.
func (q *QP) check(b []byte, k *packet) (id uint16, ok bool) {
	if len(k.payload) >= minDirect {
		k.place = q.place(k)
	}
	if q.via != overNetwork {
		copy(k.place, k.payload)
		return 0, true
	}
	front := q.fromIn.Front(len(b))
	if k.place == nil {
		return front.Check(b)
	}
	return front.CheckCopying(b, k.head, k.place)
}

// place returns the memory to which the payload of k may be copied before the
// CRC of k is known, or nil. The headers must be right in every respect: a
// place exists only for the packet that continues an open message, and the
// message gives the address. If the CRC is wrong, the retransmission overwrites
// the bytes.
//
// A packet of a SEND has no place, because the receive buffer after the end of the
// message must not change. The last packet of a WRITE has none, because an application
// may poll the last byte.
func (q *QP) place(k *packet) []byte {
	if !k.inPartition() || k.service != q.service || !q.acknowledged() {
		return nil
	}
	n := len(k.payload)
	if k.layout&wire.IsResponse != 0 {
		r := &q.req
		w := r.head
		if w == nil || w.Op != ibv.WRRead || k.PSN != r.una || psnDiff(k.PSN, r.high) >= 0 || q.state != rdma.StateRTS {
			return nil
		}
		if !q.fitsRead(k, w, w.index(k.PSN)) {
			return nil
		}
		return placeOf(w.Dst, n)
	}
	s := &q.resp
	if k.Opcode != wire.WriteMiddle || k.PSN != s.psn || s.dying != nil || !q.inOrder(k, s.kind, writing) || uint64(s.got)+uint64(n) >= uint64(s.length) {
		return nil
	}
	return placeOf(s.sink, n)
}

func placeOf(dst Sink, n int) []byte {
	if p, ok := dst.(Placer); ok {
		return p.Place(n)
	}
	return nil
}

// deliver passes the payload of k to dst. It calls Placed if the payload was
// already copied, otherwise Write.
func (k *packet) deliver(dst Sink) error {
	if k.place != nil {
		return dst.(Placer).Placed(len(k.payload))
	}
	return dst.Write(k.payload)
}
