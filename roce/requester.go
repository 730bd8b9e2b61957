package roce

import (
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/base/wire"
)

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
	blocked  bool // a window has no room for the next packet
	probe    bool // a window was full for a whole timeout: send one packet anyway
	waiting  bool // RNR: nothing is sent until deadline
	gap      bool // tx went back to gapPSN for a reported loss ...
	gapPSN   uint32
	gapTime  int64 // ... at this time
	deadline int64 // when timeout is to be called; 0: never
	unasked  int64 // bytes sent since a packet with the acknowledge bit

	// Recovery. Nothing from the peer for a whole timeout uses up a retry; a probe,
	// which is a retransmission of the oldest packet after about a round trip,
	// does not.
	retries    uint8 // full timeouts that are left
	rnrRetries uint8
	since      int64 // when the wait for una began, or when the last full timeout ended
	probeFrom  int64 // when the wait for the next probe began
	backoff    uint8 // probes since una moved last
	probing    bool  // a probe is to be sent
	probed     bool  // the packet probedPSN was sent as a probe
	probedPSN  uint32
	paceAt     int64 // pacing lets the next packet leave at this time; 0: it does not hold any

	rtt      roundTrips
	rttPSN   uint32 // of the packet that is being timed
	rttStart int64  // when it was sent; 0: none is
	doubt    bool   // it was sent again: the answer may be to either

	// Selective repeat.
	done      uint32 // the peer has carried out every request before this one
	board     scoreboard
	early     early       // responses
	respHigh  uint32      // one past the last response that is known to have been sent
	granted   uint32      // the peer may send responses before this one
	grantEnd  uint32      // one past the last response of all READs that were sent
	regrant   bool        // the grant may have been lost: send it again
	ask       []wire.Span // responses to ask for again
	repeated  bool        // responses of READs in flight were asked for more than once
	withdraw  bool        // state in a RepeatResponses that all before una have arrived
	asks      []asked     // indexed with the PSN
	askScan   uint32      // responses before it were looked for
	askMark   uint8       // of the last request for responses
	gotMark   uint8       // of the last one that was answered
	sounding  bool        // a probe for responses is out: its mark, and one past ...
	soundMark uint8
	soundHigh uint32 // ... the last response that it stands for
	marked    bool   // gotMark has moved: look for responses that were lost again
}

func (r *requester) init(c *SendConfig) {
	*r = requester{una: c.PSN, tx: c.PSN, high: c.PSN, end: c.PSN, done: c.PSN, respHigh: c.PSN, askScan: c.PSN, granted: c.PSN, grantEnd: c.PSN, early: r.early}
	r.early.clear()
	r.retries, r.rnrRetries = c.RetryCount, c.RNRRetry
	r.rtt.init()
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

// checkWork returns the status of Work that cannot be carried out, and says in w.Err why.
func (q *QP) checkWork(w *Work) Status {
	refuse := func(st Status, format string, args ...any) Status {
		w.Err = fmt.Errorf(format, args...)
		return st
	}
	if w.Op == OpLocal {
		return StatusSuccess // and w.Err is the Handler's
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
	case datagrams && (w.AH == nil || w.DestQPN > psnMask):
		return refuse(StatusLocQPOpErr, "datagram without an address handle, or to QP number %#x: must fit 24 bits", w.DestQPN)
	case datagrams && int64(w.Length) > int64(q.recv.MTU):
		return refuse(StatusLocLenErr, "%d bytes: a datagram has at most %d", w.Length, q.recv.MTU)
	}
	return StatusSuccess
}

// localStatus returns the status that an error of a requester's Source or Sink
// stands for.
func localStatus(err error) Status {
	var st StatusError
	if errors.As(err, &st) && Status(st) != StatusSuccess {
		return Status(st)
	}
	return StatusLocProtErr
}
