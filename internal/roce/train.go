package roce

import (
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
)

// trainsPerSend is the number of trains in one call of Send. It is large enough to save
// system calls, and small enough to stay in the cache and to let the receiver start
// early.
const trainsPerSend = 4

// trainSize is the size of a train's buffer: the largest train that a network takes, or two packets
// inside the port.
const trainSize = max(packetconn.RecvSize, 2*(wire.MaxHeaders+insideMTU))

// A builder groups packets into trains, in the order in which they are added. A train is
// one buffer of packets of equal length to one destination, which the system cuts into
// datagrams (GSO). Its last packet may be shorter.
type builder struct {
	ecn    byte      // ECN bits of every packet
	line   *lineRate // paces UC and UD packets
	trains [trainsPerSend]packetconn.Train
	paths  [trainsPerSend]path // path of each train
	n      int                 // trains in use; packets are added to the last one
	count  int                 // packets in the last train
	closed bool                // the last train ends with a shorter packet
	full   bool                // add found no room

	// If several processes share an address, each train has packets for only
	// one of them, because they receive whole trains.
	byMember bool
	member   uint32 // process that the next packet is for
	last     uint32 // process that the last train is for

	total int // packets in all trains
}

func newBuilder(ecn byte) *builder {
	b := &builder{ecn: ecn}
	for i := range b.trains {
		b.trains[i] = packetconn.Train{Buf: netconn.NewBuffer(trainSize)[:0], Swap: true}
	}
	return b
}

// aim sets the destination QP of the packets that are added next.
func (b *builder) aim(qpn uint32) {
	switch {
	case !b.byMember:
	case qpn == gsiQPN:
		b.member = gsiMember
	default:
		b.member = qpn >> memberShift
	}
}

const (
	memberShift = 24 - netconn.MemberBits
	gsiMember   = 1 << netconn.MemberBits // the process that handles QP 1
)

// joins reports whether a packet can be added to the last train.
func (b *builder) joins(w *path, size int) bool {
	if b.n == 0 {
		return false
	}
	t := &b.trains[b.n-1]
	limits := &w.from.limits
	datagrams, bytes := limits.Datagrams, limits.Bytes
	if w.near != nil {
		datagrams, bytes = cap(t.Buf), cap(t.Buf)
	}
	return !b.closed && size <= t.Seg && b.count < datagrams && len(t.Buf)+size <= bytes && b.paths[b.n-1] == *w && b.last == b.member
}

// fits reports whether add would find room.
func (b *builder) fits(w *path, size int) bool {
	return b.n < len(b.trains) || b.joins(w, size)
}

// add reserves size bytes for a packet and returns them, with the identification that the
// packet's IPv4 header will carry. It returns nil if the trains are full. The bytes are
// not cleared.
func (b *builder) add(w *path, size int) (p []byte, id uint16) {
	if !b.joins(w, size) {
		if b.n == len(b.trains) {
			b.full = true
			return nil, 0
		}
		t := &b.trains[b.n]
		t.Addr, t.Seg, t.TOS, t.Buf, t.Route = w.to, size, w.tos|b.ecn, t.Buf[:0], w.route
		b.paths[b.n] = *w
		b.last = b.member
		b.n++
		b.count = 0
		b.closed = false
	}
	t := &b.trains[b.n-1]
	at := len(t.Buf)
	t.Buf = t.Buf[:at+size]
	id = w.from.conn.ID(b.count)
	b.count++
	b.total++
	b.closed = size < t.Seg
	return t.Buf[at : at+size : at+size], id
}

// undo removes the packet of size bytes that was added last.
func (b *builder) undo(size int) {
	t := &b.trains[b.n-1]
	t.Buf = t.Buf[:len(t.Buf)-size]
	b.count--
	b.total--
	b.closed = false
	if b.count == 0 {
		b.n--
		b.closed = true // the previous train may have ended with a shorter packet
	}
}

// reset removes all trains.
func (b *builder) reset() {
	b.n, b.count, b.total, b.closed, b.full = 0, 0, 0, false, false
}
