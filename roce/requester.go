package roce

import (
	"errors"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// turnBytes is how much of one QP's data goes out before the next QP has its
// turn: a message of 64 KiB in packets of 4 KiB, with what they cost beside.
const turnBytes = 72 << 10

// progress is what the requester keeps in a Work that was begun.
type progress struct {
	next   *Work
	first  uint32 // PSN of its first packet, or for READ of its first response
	count  uint32 // packets, or responses; 0: local
	status Status // how it ends when its turn to complete comes, if that is known: always for local work
	failed bool   // status is to be used though not everything was acknowledged
}

// requester is the sending half of a QP: Work in, requests out; responses in,
// completions out.
//
// Sequence numbers go around in 24 bits; in this order, una <= tx <= high, and
// tx <= end:
//
//	una   the oldest that is not acknowledged, in the first Work of the list
//	tx    the next to go on the wire, in cur
//	high  one past the last that ever was on the wire; after a loss tx is less
//	end   the first of the next Work to begin
//
// A READ takes as many sequence numbers as it has response packets. It goes on
// the wire as one request, however long it is: the peer's memory may be a key with
// blocks, and only the application knows where one begins. What is lost of it is
// asked for again from there to its end.
type requester struct {
	head, tail *Work // Work that was begun and has not completed, in order
	cur        *Work // the one that tx is in; nil: all was sent once
	una        uint32
	tx         uint32
	high       uint32
	end        uint32

	out, in int64 // what of the two windows lies in [una, tx)
	reads   int   // READ requests and atomics in [una, tx)

	again    bool // something was acknowledged or lost: there may be something to send
	stopped  bool // no Work is begun any more: one is going to fail
	blocked  bool // a window has no room for the next packet ...
	probe    bool // ... which was so for as long as a timeout: send one all the same
	waiting  bool // RNR: nothing is sent until deadline
	gap      bool // went back to gapPSN for a loss that a response told of ...
	gapPSN   uint32
	gapTime  int64 // ... at this time
	deadline int64 // when to give up waiting for una, for the RNR timer or for a window; 0: never

	retries    uint8 // timeouts that are left
	rnrRetries uint8

	// A round trip is timed now and then: the smoothed time, and the packet
	// that is being timed.
	rtt      int64
	rttPSN   uint32
	rttStart int64 // 0: none is
}

func (r *requester) init(c *SendConfig) {
	*r = requester{una: c.PSN, tx: c.PSN, high: c.PSN, end: c.PSN}
	r.retries, r.rnrRetries = c.RetryCount, c.RNRRetry
	r.rtt = 500e3
}

// index returns how many packets of w come before PSN p, which is in w.
func (w *Work) index(p uint32) uint32 { return (p - w.progress.first) & psnMask }

// answered reports whether w has responses of its own, rather than
// acknowledgements.
func (w *Work) answered() bool {
	return w.Op == OpRead || w.Op == OpCmpSwap || w.Op == OpFetchAdd
}

// bytes returns the message bytes of packets [i, j) of w.
func (q *QP) bytes(w *Work, i, j uint32) int64 {
	mtu := int64(q.recv.MTU)
	return min(int64(j)*mtu, int64(w.Length)) - min(int64(i)*mtu, int64(w.Length))
}

// cost returns what packets [i, j) of w take of the send window and of the read
// window.
func (q *QP) cost(w *Work, i, j uint32) (out, in int64) {
	n := int64(j-i) * packetCost
	switch w.Op {
	case OpRead:
		return 0, n + q.bytes(w, i, j)
	case OpCmpSwap, OpFetchAdd:
		return n, 0
	}
	return n + q.bytes(w, i, j), 0
}

// begin asks the Handler for Work until there is some that has packets, and
// puts it in the list. It returns nil if there is none.
func (q *QP) begin() *Work {
	r := &q.req
	for q.state == StateRTS && !r.stopped {
		w := q.h.Next()
		if w == nil {
			return nil
		}
		w.progress = progress{first: r.end}
		p := &w.progress
		p.status = q.checkWork(w)
		local := w.Op == OpLocal || p.status != StatusSuccess
		if w.Op == OpLocal {
			p.status = w.Status
		}
		if !local {
			p.count = 1
			if w.Op != OpCmpSwap && w.Op != OpFetchAdd {
				p.count = packets(w.Length, q.recv.MTU)
			}
			r.end = psnAdd(r.end, int(p.count))
		}
		if r.head == nil {
			r.head = w
		} else {
			r.tail.progress.next = w
		}
		r.tail = w
		if !local {
			r.cur = w
			return w
		}
		r.stopped = p.status != StatusSuccess
		q.completeHead()
	}
	return nil
}

// checkWork returns the status of Work that cannot be carried out.
func (q *QP) checkWork(w *Work) Status {
	switch w.Op {
	case OpWrite, OpWriteImm, OpSend, OpSendImm, OpSendInv:
		if w.Length > MaxMessage {
			return StatusLocLenErr
		}
	case OpRead:
		if w.Length > MaxMessage {
			return StatusLocLenErr
		}
		if q.send.MaxRdAtomic == 0 {
			return StatusLocQPOpErr
		}
	case OpCmpSwap, OpFetchAdd:
		if q.send.MaxRdAtomic == 0 {
			return StatusLocQPOpErr
		}
	case OpLocal:
	default:
		return StatusLocQPOpErr
	}
	return StatusSuccess
}

// buildRequests adds requests to b until the turn is over, and reports whether
// there are more to send that nothing but the turn's end holds back.
func (q *QP) buildRequests(b *builder, now int64) (more bool) {
	r := &q.req
	if q.state != StateRTS || r.waiting {
		return false
	}
	r.blocked = false
	// The limit is looked at once: the last packet of a turn must know that it
	// is.
	limit := q.peer.out.limit.Load()
	for budget := int64(turnBytes); ; {
		w := r.cur
		if w == nil {
			if w = q.begin(); w == nil {
				return false
			}
		}
		if w.progress.failed {
			return false // its own packets up to here have to be acknowledged first
		}
		if budget <= 0 {
			return true
		}
		i := w.index(r.tx)
		j := i + 1
		if w.Op == OpRead {
			j = w.progress.count
		}
		if w.answered() && r.reads >= q.send.MaxRdAtomic {
			return false
		}
		out, in := q.cost(w, i, j)
		if !r.probe && !q.room(out, in, limit) {
			r.blocked = true
			return false
		}
		var ok bool
		switch {
		case w.Op == OpRead:
			ok = q.putRead(b, w, i, j)
		case w.answered():
			ok = q.putAtomic(b, w)
		default:
			ok = q.putData(b, w, i, min(budget, limit-q.peer.out.used.Load()))
		}
		if !ok {
			if w.progress.failed {
				q.completeHead()
				return false
			}
			return true // no room in the trains
		}
		r.probe = false
		if r.tx == r.una {
			r.deadline = 0 // was that of waiting for room
		}
		q.peer.out.used.Add(out)
		q.peer.in.used.Add(in)
		r.out += out
		r.in += in
		if w.answered() {
			r.reads++
		}
		if psnDiff(r.tx, r.high) < 0 {
			q.port.n.Retransmitted.Add(1)
		} else if r.rttStart == 0 {
			r.rttStart, r.rttPSN = now, r.tx
		}
		r.tx = psnAdd(r.tx, int(j-i))
		if psnDiff(r.tx, r.high) > 0 {
			r.high = r.tx
		}
		if j == w.progress.count {
			r.cur = w.progress.next
			for r.cur != nil && r.cur.progress.count == 0 {
				r.cur = r.cur.progress.next
			}
		}
		budget -= max(out, packetCost)
	}
}

// room reports whether the windows have room, and makes the QP wait for it if
// not.
func (q *QP) room(out, in, limit int64) bool {
	for w := &q.peer.out; out != 0; limit = w.limit.Load() {
		if used := w.used.Load(); used <= 0 || used+out <= limit {
			break
		}
		if w.wait(q, out, &q.waitsOut) {
			return false
		}
	}
	for w := &q.peer.in; in != 0 && !w.room(in); {
		if w.wait(q, in, &q.waitsIn) {
			return false
		}
	}
	return true
}

// dataOps has the opcodes of SEND and WRITE: of the first, middle, last and
// only packet of a message.
var dataOps = [...][4]wire.Opcode{
	OpWrite:    {wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly},
	OpWriteImm: {wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm},
	OpSend:     {wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly},
	OpSendImm:  {wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm},
	OpSendInv:  {wire.SendFirst, wire.SendMiddle, wire.SendLastInv, wire.SendOnlyInv},
}

// Positions of a packet in its message.
const (
	first = iota
	middle
	last
	only
)

// position returns where packet i of n is.
func position(i, n uint32) int {
	switch {
	case n == 1:
		return only
	case i == 0:
		return first
	case i == n-1:
		return last
	}
	return middle
}

// putData adds packet i of a SEND or WRITE. room is what the turn, and the send
// window, have left for this packet and the next.
func (q *QP) putData(b *builder, w *Work, i uint32, room int64) bool {
	r := &q.req
	mtu := q.recv.MTU
	off := uint64(i) * uint64(mtu)
	n := int(min(uint64(mtu), uint64(w.Length)-off))
	pos := position(i, w.progress.count)
	op := dataOps[w.Op][pos]
	head := op.HeaderLen()
	size := head + n + pads(n) + wire.ICRCLen
	p, id := b.add(q.recv.Peer, size)
	if p == nil {
		return false
	}
	payload := view(w.Src, off, n)
	if payload == nil && n > 0 {
		if err := w.Src.ReadAt(p[head:head+n], off); err != nil {
			b.undo(size)
			w.fail(localStatus(err))
			q.failure = err
			r.stopped = true
			return false
		}
	}
	bth := wire.BTH{
		Opcode: op, MigReq: true, Pad: uint8(pads(n)), PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: r.tx,
	}
	// The end of a message is acknowledged, and so is the last packet before a
	// pause: without that the window might stay as full as it is.
	if pos == last || pos == only {
		bth.AckReq = true
		bth.Solicited = w.Solicited
	} else {
		two, _ := q.cost(w, i, i+2)
		bth.AckReq = two > room || !b.fits(q.recv.Peer, wire.BTHLen+wire.ImmDtLen+mtu+wire.ICRCLen)
	}
	wire.PutBTH(p, &bth)
	ext := p[wire.BTHLen:]
	layout := op.Layout()
	if layout&wire.HasRETH != 0 {
		wire.PutRETH(ext, &wire.RETH{VA: w.RemoteAddr, RKey: w.RKey, Length: w.Length})
		ext = ext[wire.RETHLen:]
	}
	if layout&wire.HasImmDt != 0 {
		wire.PutImmDt(ext, &wire.ImmDt{Imm: w.Imm})
	}
	if layout&wire.HasIETH != 0 {
		wire.PutIETH(ext, &wire.IETH{RKey: w.InvKey})
	}
	q.seal(p, id, head, n, payload)
	return true
}

// putRead adds a READ request for responses [i, j).
func (q *QP) putRead(b *builder, w *Work, i, j uint32) bool {
	const size = wire.BTHLen + wire.RETHLen + wire.ICRCLen
	p, id := b.add(q.recv.Peer, size)
	if p == nil {
		return false
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: wire.ReadRequest, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: q.req.tx, AckReq: true,
	})
	wire.PutRETH(p[wire.BTHLen:], &wire.RETH{
		VA:     w.RemoteAddr + uint64(i)*uint64(q.recv.MTU),
		RKey:   w.RKey,
		Length: uint32(q.bytes(w, i, j)),
	})
	q.flow.Front(size).WithID(id).PutICRC(p)
	return true
}

// putAtomic adds an atomic request.
func (q *QP) putAtomic(b *builder, w *Work) bool {
	const size = wire.BTHLen + wire.AtomicETHLen + wire.ICRCLen
	p, id := b.add(q.recv.Peer, size)
	if p == nil {
		return false
	}
	bth := wire.BTH{
		Opcode: wire.FetchAdd, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: q.req.tx, AckReq: true,
	}
	eth := wire.AtomicETH{VA: w.RemoteAddr, RKey: w.RKey, SwapAdd: w.CompareAdd}
	if w.Op == OpCmpSwap {
		bth.Opcode = wire.CompareSwap
		eth.SwapAdd, eth.Compare = w.Swap, w.CompareAdd
	}
	wire.PutBTH(p, &bth)
	wire.PutAtomicETH(p[wire.BTHLen:], &eth)
	q.flow.Front(size).WithID(id).PutICRC(p)
	return true
}

// fail decides that w is to end with st when everything before it is done.
func (w *Work) fail(st Status) {
	w.progress.failed = true
	w.progress.status = st
}

// localStatus returns the status that an error of a requester's Source or Sink
// stands for.
func localStatus(err error) Status {
	var st Status
	if errors.As(err, &st) && st != StatusSuccess {
		return st
	}
	return StatusLocProtErr
}
