package roce

import (
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// progress is the requester's state of a Work.
type progress struct {
	next   *Work
	first  uint32 // PSN of its first packet; for a READ, of its first response
	count  uint32 // number of packets, or of responses for a READ; 0 for local work
	status Status // status of its completion, if known in advance: local work always has one
	again  uint32 // number of packets that were sent again
	failed bool   // it fails with status, even though not all of its packets were acknowledged
}

// requester is the sending half of a QP: it turns Work into requests, and responses into
// completions.
//
// These PSNs describe its state; in circular order una <= tx <= high and tx <= end:
//
//	una   the oldest unacknowledged packet, in the first Work of the list
//	tx    the next packet to send, in cur
//	high  one after the last packet that was ever sent; after a loss, tx goes back
//	end   the first packet of the next Work to begin
//
// A READ takes one PSN for each response packet. Its request is one packet, for any
// length: the peer's memory may be a key whose data is organised in blocks, and the
// transport does not know where a block begins. A retransmitted READ asks for the
// responses from the first missing one to the last.
type requester struct {
	head, tail *Work // outstanding Work, in order
	cur        *Work // the Work that contains tx; nil: all outstanding Work was sent
	una        uint32
	tx         uint32
	high       uint32
	end        uint32

	out, in int64 // bytes in the two windows for packets in [una, tx)
	reads   int   // READs and atomics in [una, tx)

	again     bool  // an acknowledgement or a loss may allow sending
	stall     Stall // as the TraceHandler knows it
	stopped   bool  // no more Work is begun, because one is about to fail
	blocked   bool  // a window has no room for the next packet
	probe     bool  // the window stayed full for a whole timeout: send one packet anyway
	waiting   bool  // an RNR NAK arrived: nothing is sent until deadline
	gap       bool  // tx went back to gapPSN because a response reported a loss
	gapPSN    uint32
	gapTime   int64  // time of that
	gapHigh   uint32 // PSN of the last response that came before the response of una
	restarted bool   // the PSNs of responses before that of una have started again
	deadline  int64  // time at which timeout is called; 0: never
	unasked   int64  // bytes sent since the last packet with the acknowledge-request bit

	// Recovery. A full timeout without progress, or evidence of it, uses up a retry. A
	// probe, which retransmits the oldest packet after about a round trip, does not.
	retries    uint8 // remaining full timeouts
	rnrRetries uint8
	tries      uint8  // retransmissions of una, up to maxTries
	backoff    uint8  // probes since una last advanced
	starved    bool   // a full timeout was prolonged, because its timer was late
	probing    bool   // send a probe
	probed     bool   // packet probedPSN was sent as a probe
	doubt      bool   // packet rttPSN was retransmitted: the response may belong to either copy
	since      int64  // start of the wait for una, or end of the last full timeout
	paused     int64  // time from which on nothing is in flight, if una == tx
	owed       int64  // READ responses that were requested and have not arrived
	sackHigh   uint32 // no SelectiveAck reported a packet after this PSN
	answer     answer // last response that made no progress
	probeFrom  int64  // start of the wait for the next probe
	copied     uint32 // PSN of the last response of a READ that was answered before
	probedPSN  uint32
	paceAt     int64 // time at which pacing allows the next packet; 0: now

	rtt      roundTrips
	rttPSN   uint32 // packet whose round trip is being measured
	rttStart int64  // time at which it was sent; 0: no measurement

	// Selective repeat.
	done      uint32 // the peer has executed every request before this PSN
	board     scoreboard
	early     early       // early responses
	respHigh  uint32      // one after the last response that the peer is known to have sent
	granted   uint32      // the peer may send responses before this PSN
	grantEnd  uint32      // one after the last response of all READs that were sent
	regrant   bool        // the grant may have been lost: send it once more
	ask       []wire.Span // missing responses to ask for
	repeated  bool        // responses of outstanding READs were asked for more than once
	withdraw  bool        // send a withdrawal: a RepeatResponses that says that all responses before una have arrived
	asks      []uint8     // see asked; indexed with the PSN modulo the length
	askScan   uint32      // responses before it were examined
	askMark   uint8       // mark of the last RepeatResponses sent
	gotMark   uint8       // mark of the last RepeatResponses that the peer answered
	sounding  bool        // a probe for responses is outstanding, with mark soundMark
	soundMark uint8
	soundHigh uint32 // one after the last response that was granted when it was sent
	marked    bool   // gotMark has advanced: responses that were asked for may have been lost again
}

func (r *requester) init(c *SendConfig) {
	*r = requester{una: c.PSN, tx: c.PSN, high: c.PSN, end: c.PSN, done: c.PSN, respHigh: c.PSN, sackHigh: c.PSN, askScan: c.PSN, granted: c.PSN, grantEnd: c.PSN, early: r.early}
	r.early.clear()
	r.retries, r.rnrRetries = c.RetryCount, c.RNRRetry
	r.rtt.init()
}

// index returns the position of PSN p in w, in packets.
func (w *Work) index(p uint32) uint32 { return (p - w.progress.first) & psnMask }

// answered reports whether responses complete w, rather than acknowledgements.
func (w *Work) answered() bool {
	return w.Op == OpRead || w.Op == OpCmpSwap || w.Op == OpFetchAdd
}

// bytes returns the number of message bytes in packets [i, j) of w.
func (q *QP) bytes(w *Work, i, j uint32) int64 {
	mtu := int64(q.recv.MTU)
	return min(int64(j)*mtu, int64(w.Length)) - min(int64(i)*mtu, int64(w.Length))
}

// cost returns the bytes that packets [i, j) of w occupy in the send window and in the
// read window.
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

// begin takes Work from the Handler until one has packets to send, and appends it to the
// list. It returns nil if there is none.
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

// maxResponses is the largest number of responses of one READ. With the packets that may be
// in flight before it, they span less than half of the PSNs, so that PSNs can be compared.
// Only READs of nearly MaxMessage with the smallest MTU have more.
const maxResponses = 1<<23 - 1 - maxScoreboard

// checkWork returns the status of w if it cannot be executed, and sets w.Err to the
// reason.
func (q *QP) checkWork(w *Work) Status {
	refuse := func(st Status, format string, args ...any) Status {
		w.Err = fmt.Errorf(format, args...)
		return st
	}
	if w.Op == OpLocal {
		return StatusSuccess // w.Err was set by the Handler
	}
	w.Err = nil
	datagrams := q.service == wire.ServiceUD
	switch w.Op {
	case OpSend, OpSendImm:
	case OpWrite, OpWriteImm:
		if datagrams {
			return refuse(StatusLocQPOpErr, "operation %d: a datagram QP has SEND only", w.Op)
		}
	case OpSendInv, OpRead, OpCmpSwap, OpFetchAdd:
		switch {
		case !q.acknowledged():
			return refuse(StatusLocQPOpErr, "operation %d: only reliable connections have it", w.Op)
		case w.Op != OpSendInv && q.send.MaxRdAtomic == 0:
			return refuse(StatusLocQPOpErr, "operation %d: max_rd_atomic of the QP is 0", w.Op)
		}
	default:
		return refuse(StatusLocQPOpErr, "operation %d: unknown", w.Op)
	}
	switch {
	case q.typ == TypeXRCRecv:
		return refuse(StatusLocQPOpErr, "operation %d: the QP only receives", w.Op)
	case w.Length > MaxMessage:
		return refuse(StatusLocLenErr, "%d bytes: a message has at most %d", w.Length, uint32(MaxMessage))
	case w.Op == OpRead && packets(w.Length, q.recv.MTU) > maxResponses:
		return refuse(StatusLocLenErr, "RDMA READ of %d bytes: with a path MTU of %d it has at most %d", w.Length, q.recv.MTU, maxResponses*int64(q.recv.MTU))
	case datagrams && (w.AH == nil || w.DestQPN > psnMask):
		return refuse(StatusLocQPOpErr, "datagram without an address handle, or to QP number %#x: must fit 24 bits", w.DestQPN)
	case datagrams && int64(w.Length) > int64(q.recv.MTU):
		return refuse(StatusLocLenErr, "%d bytes: a datagram has at most %d", w.Length, q.recv.MTU)
	}
	return StatusSuccess
}

// localStatus returns the status for an error of a requester's Source or Sink.
func localStatus(err error) Status {
	var st StatusError
	if errors.As(err, &st) && Status(st) != StatusSuccess {
		return Status(st)
	}
	return StatusLocProtErr
}
