package roce

import (
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/congestion"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/rdma"
)

// progress is the requester's state of a Work.
type progress struct {
	next   *Work
	whole  *Work       // the READ of which this is a part; nil: none
	first  uint32      // PSN of its first packet; for a READ, of its first response
	count  uint32      // number of packets, or of responses for a READ; 0 for local work
	status rdma.Status // status of its completion, if known in advance: local work always has one
	again  uint32      // number of packets that were sent again
	failed bool        // w fails with status, even though not all of its packets were acknowledged
}

// requester is the sending half of a QP: it turns Work into requests, and responses into
// completions.
type requester struct {
	workList
	loss     loss.Sender
	again    bool  // an acknowledgement or a loss may allow sending
	asks     bool  // a question is to be sent
	stall    Stall // last reason reported to the Handler
	waiting  bool  // an RNR NAK arrived: nothing is sent until deadline
	deadline int64 // time at which timeout is called; 0: never
	unasked  int64 // bytes sent since the last packet with the acknowledge-request bit

	flight inFlight // congestion control
}

func (r *requester) init(psn uint32, a loss.Attributes) {
	*r = requester{loss: loss.NewSender(a)}
	r.workList.init(psn)
}

// restart discards what was measured of the peer, because the connection to it
// ended. All requests that were sent have been acknowledged.
func (r *requester) restart(a loss.Attributes) {
	r.loss, r.flight, r.unasked, r.asks = loss.NewSender(a), inFlight{}, 0, false
}

// mayBuild lets the QP build packets after this batch, because an acknowledgement or a loss
// may allow sending.
func (r *requester) mayBuild() { r.again = true }

// builds reports whether mayBuild was called since the last call.
func (r *requester) builds() bool {
	again := r.again
	r.again = false
	return again
}

// bytes returns the number of message bytes in packets [i, j) of w.
func (q *endpoint) bytes(w *Work, i, j uint32) int64 {
	mtu := int64(q.mtuOf(w))
	return min(int64(j)*mtu, int64(w.Length)) - min(int64(i)*mtu, int64(w.Length))
}

// fullCost returns the cost of a full packet in a window.
func (q *endpoint) fullCost() int64 { return int64(q.mtu() + congestion.PacketCost) }

// cost returns the bytes that packets [i, j) of w occupy in the send window and in the
// read window.
func (q *endpoint) cost(w *Work, i, j uint32) (out, in int64) {
	n := int64(j-i) * congestion.PacketCost
	switch {
	case w.Op == ibv.WRRead:
		return 0, n + q.bytes(w, i, j)
	case w.Op.Atomic():
		return n, 0
	}
	return n + q.bytes(w, i, j), 0
}

// begin takes Work from the Handler until one has packets to send, and appends it to the
// list. It returns nil if there is none.
func (q *QP) begin() *Work {
	r := &q.req
	for q.state == rdma.StateRTS && !r.stopped {
		if r.whole != nil {
			return q.beginPart()
		}
		w := q.h.Next()
		if w == nil {
			return nil
		}
		w.progress = progress{first: r.end}
		p := &w.progress
		p.status = q.checkWork(w)
		local := w.Op == WRLocal || p.status != rdma.StatusSuccess
		if w.Op == WRLocal {
			p.status = w.Status
		}
		if !local {
			p.count = 1
			if !w.Op.Atomic() {
				p.count = packets(w.Length, q.mtuOf(w))
			}
			if q.divides(w) {
				r.whole = w
				continue
			}
		}
		r.add(w)
		if !local {
			return w
		}
		if p.status != rdma.StatusSuccess {
			r.stop()
		}
		q.completeHead()
	}
	return nil
}

// maxResponses is the largest number of responses of one READ. With the packets that may be
// in flight before it, they span less than half of the PSNs, so that PSNs can be compared.
const maxResponses = 1<<23 - 1 - maxOutstanding

// maxOutstanding is the largest number of packets in flight.
const maxOutstanding = 1 << 16

// checkWork returns the status of w if it cannot be executed, and sets w.Err to the
// reason.
func (q *QP) checkWork(w *Work) rdma.Status {
	refuse := func(st rdma.Status, format string, args ...any) rdma.Status {
		w.Err = fmt.Errorf(format, args...)
		return st
	}
	if w.Op == WRLocal {
		return rdma.StatusSuccess // w.Err was set by the Handler
	}
	w.Err = nil
	datagrams := q.service == wire.ServiceUD
	switch w.Op {
	case ibv.WRSend, ibv.WRSendImm:
	case ibv.WRWrite, ibv.WRWriteImm:
		if datagrams {
			return refuse(rdma.StatusLocQPOpErr, "operation %d: a datagram QP has SEND only", w.Op)
		}
	case ibv.WRSendInv, ibv.WRRead, ibv.WRCmpSwap, ibv.WRFetchAdd, ibv.WRMaskedCmpSwap, ibv.WRMaskedFetchAdd:
		switch {
		case !q.acknowledged():
			return refuse(rdma.StatusLocQPOpErr, "operation %d: only reliable connections have it", w.Op)
		case w.Op != ibv.WRSendInv && q.send.MaxRdAtomic == 0:
			return refuse(rdma.StatusLocQPOpErr, "operation %d: max_rd_atomic of the QP is 0", w.Op)
		}
	default:
		return refuse(rdma.StatusLocQPOpErr, "operation %d: unknown", w.Op)
	}
	switch {
	case q.typ == ibv.XRCRecv || q.typ == ibv.DCT:
		return refuse(rdma.StatusLocQPOpErr, "operation %d: the QP only receives", w.Op)
	case w.Length > MaxMessage:
		return refuse(rdma.StatusLocLenErr, "%d bytes: a message has at most %d", w.Length, MaxMessage)
	case w.Op.Masked() && w.Length != 4 && w.Length != 8:
		return refuse(rdma.StatusLocLenErr, "a masked atomic of %d bytes: the word has 4 or 8", w.Length)
	case (datagrams || q.typ == ibv.DCI) && (w.AH == nil || w.DestQPN > psnMask):
		return refuse(rdma.StatusLocQPOpErr, "a request without an address handle, or to QP number %#x: must fit 24 bits", w.DestQPN)
	case datagrams && int64(w.Length) > int64(q.recv.MTU):
		return refuse(rdma.StatusLocLenErr, "%d bytes: a datagram has at most %d", w.Length, q.recv.MTU)
	}
	return rdma.StatusSuccess
}

// localStatus returns the status for an error of a requester's Source or Sink.
func localStatus(err error) rdma.Status {
	var st rdma.StatusError
	if errors.As(err, &st) && rdma.Status(st) != rdma.StatusSuccess {
		return rdma.Status(st)
	}
	return rdma.StatusLocProtErr
}
