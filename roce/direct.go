package roce

import "github.com/softmkey/softmkey/internal/base/wire"

// Payload that lies in memory, or goes there, is copied in the pass that computes
// the packet's CRC, instead of before or after it. Less than minDirect bytes are not
// worth it.
const minDirect = 256

// view returns n bytes of src where they lie, or nil.
func view(src Source, off uint64, n int) []byte {
	if v, ok := src.(Viewer); ok && n >= minDirect {
		return v.View(off, n)
	}
	return nil
}

// seal ends packet p, whose headers take head bytes. The payload of n bytes is in
// the packet, or in memory.
func (q *QP) seal(p []byte, id uint16, head, n int, memory []byte) {
	front := q.flow.Front(len(p)).WithID(id)
	if memory != nil {
		front.Fill(p, head, memory)
		return
	}
	clear(p[head+n : len(p)-wire.ICRCLen])
	front.PutICRC(p)
}

// check checks the CRC of packet b, which k is, and puts the payload in its place on
// the way, if that is known: then k.place is set.
func (q *QP) check(b []byte, k *packet) (id uint16, ok bool) {
	front := q.fromIn.Front(len(b))
	if len(k.payload) >= minDirect {
		k.place = q.place(k)
	}
	if k.place == nil {
		return front.Check(b)
	}
	return front.CheckCopying(b, k.head, k.place)
}

// place returns the memory that the payload of k is copied to before the CRC of k is
// known, or nil. Everything that the headers say is checked first: only the packet
// that continues an open message has such a place, and the open message says where it
// is. The bytes are overwritten if the CRC turns out to be wrong and the packet comes
// again.
//
// SEND has none: the receive buffer behind the end of the message is the
// application's. Neither has the last packet of a WRITE: an application may poll for
// its last byte.
func (q *QP) place(k *packet) []byte {
	if !k.inPartition() || k.service != q.service || !q.acknowledged() {
		return nil
	}
	n := len(k.payload)
	if k.layout&wire.IsResponse != 0 {
		r := &q.req
		w := r.head
		if w == nil || w.Op != OpRead || k.PSN != r.una || psnDiff(k.PSN, r.high) >= 0 || q.state != StateRTS {
			return nil
		}
		if !q.fitsRead(k, w, w.index(k.PSN)) {
			return nil
		}
		return placeOf(w.Dst, n)
	}
	s := &q.resp
	if k.Opcode != wire.WriteMiddle || k.PSN != s.psn || s.dying || !q.inOrder(k, writing) || uint64(s.got)+uint64(n) >= uint64(s.length) {
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

// deliver gives the payload of k to dst, unless it is there already.
func (k *packet) deliver(dst Sink) error {
	if k.place != nil {
		return dst.(Placer).Placed(len(k.payload))
	}
	return dst.Write(k.payload)
}
