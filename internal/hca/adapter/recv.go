package adapter

import (
	"errors"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/rdma"
)

// recvSlot is a receive request from its decoding to its completion.
type recvSlot struct {
	req   engine.RecvRequest
	data  []prm.Data
	index uint16 // in the queue, or in the SRQ
	srq   *SRQ   // that it came from, or nil
}

// take returns the oldest receive request, or nil. Programs write no register for receive
// requests, so take reads the doorbell record when all requests that it knows are used up.
func (r *recvQueue) take(db *buffer) (*recvSlot, error) {
	if r.count == 0 {
		return nil, nil
	}
	if r.next == r.rung {
		w, err := db.load32(prm.DoorbellRecv)
		if err != nil {
			return nil, &operr.Error{Op: "receive queue", Errno: syscall.EFAULT, Reason: "the doorbell record cannot be read", Err: err}
		}
		if r.rung = uint16(w); r.next == r.rung {
			return nil, nil
		}
	}
	if n := int(r.rung - r.next); n > r.count {
		return nil, failure.New("receive queue", syscall.EINVAL, "the doorbell is %d requests ahead, the queue has %d", n, r.count)
	}
	if err := r.ring.read(int(r.next)&(r.count-1)<<r.shift, r.buf); err != nil {
		return nil, &operr.Error{Op: "receive queue", Errno: syscall.EFAULT, Reason: "the queue cannot be read", Err: err}
	}
	slot := popRecvSlot(&r.free)
	r.taken++
	slot.fill(r.taken, r.next, r.buf)
	r.next++
	return slot, nil
}

func popRecvSlot(free *[]*recvSlot) *recvSlot {
	if n := len(*free); n > 0 {
		slot := (*free)[n-1]
		*free = (*free)[:n-1]
		return slot
	}
	slot := new(recvSlot)
	slot.req.Slot = slot
	return slot
}

// fill decodes a request: the one that was posted as number n, counted from 1, at an index.
func (slot *recvSlot) fill(n uint64, index uint16, b []byte) {
	slot.index = index
	slot.data = prm.ParseRecv(slot.data[:0], b)
	slot.req.ID = n
	slot.req.SGEs = appendSGEs(slot.req.SGEs[:0], slot.data)
}

// NextRecv implements engine.Front.
func (f *front) NextRecv() *engine.RecvRequest {
	q := (*QP)(f)
	if q.attr.SRQ != nil {
		return q.takeFrom(q.attr.SRQ)
	}
	slot, err := q.rq.take(&q.db)
	return q.use(slot, err)
}

// describeDatagram fills in the fields of a completion that describe a datagram's packet.
func (q *QP) describeDatagram(cqe *prm.CQE, c *engine.Completion) {
	cqe.SL = prm.SLIPv6
	if c.Src.Is4() {
		cqe.SL = prm.SLIPv4
	}
	if table := q.ctx.dev.GIDs(); q.ctx.guest && c.SGIDIndex >= 0 && c.SGIDIndex < len(table) {
		if !table[c.SGIDIndex].RoCEv2 {
			cqe.SL = prm.SLGRH
		}
		if vlan := table[c.SGIDIndex].VLAN; vlan != 0 {
			cqe.HasVLAN, cqe.VLAN = true, uint16(c.Priority)<<13|vlan
		}
	}
	if q.attr.Type == ibv.GSI {
		cqe.Imm = defaultPKey // its drivers look for the key in the port's table
	}
}

const defaultPKey = 0xffff

// takeFrom takes a request of an SRQ.
func (q *QP) takeFrom(srq *SRQ) *engine.RecvRequest {
	slot, err := srq.take()
	if slot != nil {
		slot.srq, slot.req.PD = srq, srq.attr.PD.eng
	}
	return q.use(slot, err)
}

// GiveBack implements engine.SharedFront.
func (f *front) GiveBack(r *engine.RecvRequest) {
	slot := r.Slot.(*recvSlot)
	slot.srq.giveBack(slot)
}

func (q *QP) use(slot *recvSlot, err error) *engine.RecvRequest {
	if errors.Is(err, syscall.ESRCH) {
		return engine.Gone
	}
	if err != nil {
		q.ctx.trace(TraceRefused, "qp", q.number, "receive", err)
	}
	if slot == nil {
		return nil
	}
	return &slot.req
}

// RecvDone implements engine.Front.
func (f *front) RecvDone(r *engine.RecvRequest, c *engine.Completion) (ok bool) {
	q := (*QP)(f)
	slot := r.Slot.(*recvSlot)
	cq, uidx := q.attr.RecvCQ, q.attr.UIDX
	if q.attr.Type == ibv.XRCRecv {
		cq, uidx = slot.srq.attr.CQ, slot.srq.attr.UIDX
	}
	cqe := &q.cqe
	*cqe = prm.CQE{
		Opcode: prm.CQERecv, Solicited: c.Solicited, UserIndex: uidx, QPN: q.number, Counter: slot.index,
		ByteCount: c.ByteLen, Imm: c.Imm, SrcQPN: c.SrcQP, GRH: c.Flags&rdma.WithGRH != 0, Timestamp: q.ctx.dev.Clock(),
	}
	if cqe.GRH {
		q.describeDatagram(cqe, c)
	}
	failed := c.Status != rdma.StatusSuccess
	switch {
	case failed:
		cqe.Opcode, cqe.Syndrome, cqe.Vendor = prm.CQERecvErr, syndromeOf(c.Status), vendorOf(c, flushedRecv)
	case c.Op == rdma.OpRecvRDMAWithImm:
		cqe.Opcode = prm.CQERecvWriteImm
	case c.Flags&rdma.WithImm != 0:
		cqe.Opcode = prm.CQERecvImm
	case c.Flags&rdma.WithInv != 0:
		cqe.Opcode, cqe.Imm = prm.CQERecvInv, c.InvKey
	}
	if len(q.owed) > 0 && cq.ctx == q.ctx { // another program does not know the keys
		q.deliverOwed(cq)
	}
	ok = cq.push(cqe, failed || c.Solicited)
	if q.ctx.tracing() {
		q.traceReceived(slot.req.ID, c, ok)
	}
	if failed {
		q.noticeFailure()
	}
	if slot.srq != nil {
		slot.srq.recycle(slot)
	} else {
		q.rq.free = append(q.rq.free, slot)
	}
	return ok
}
