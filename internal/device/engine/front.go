package engine

import (
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// Front writes the requests of a QP and reads their completions.
//
// Every method is called with the QP's lock and the transport's lock of the QP held,
// from whichever goroutine moves the QP's packets. A method must not block, and must not
// call a method of this QP or of another one, except for [QP.Num], [QP.StateLocked] and
// [QP.Wake].
type Front interface {
	// PeekSend returns the oldest send request that was not taken, or nil. The engine
	// asks again for a request that it could not begin: because of a fence, or because
	// the QP left RTS. A front that reads its requests from a program's memory must
	// read it again, because programs may cancel requests in SQD by overwriting them.
	//
	// A request that cannot be decoded is handed out with Op ibv.WRNop after
	// [SendRequest.Refuse].
	PeekSend() *SendRequest

	// TakeSend removes the request that PeekSend returned last from the queue. The
	// engine has begun it or is about to flush it.
	TakeSend()

	// SendDone ends a send request, in the order of TakeSend. It is called for requests
	// that ended with success, too, whether they are signaled or not. It returns false
	// if the completion is lost, which puts the QP in ERR.
	SendDone(r *SendRequest, c *Completion) (ok bool)

	// NextRecv removes the oldest receive request and returns it, nil if there is none, or
	// Gone.
	NextRecv() *RecvRequest

	// RecvDone ends a receive request. It returns false if the completion is lost, which
	// puts the QP in ERR.
	RecvDone(r *RecvRequest, c *Completion) (ok bool)

	// BadSignature reports a bad signature that a transfer of this QP found, before
	// SendDone or RecvDone of the transfer. It is called once for each record: again for
	// the same key only after the record was fetched by [MKey.Check], or with
	// [Options.Strict] after the key was configured anew.
	BadSignature(b *BadSignature)

	// Event reports an asynchronous event of the QP, after the completions of the
	// requests that caused it.
	Event(t rdma.EventType, err error)

	// Reset drops all requests in the queues, and those that were taken and have not
	// ended: the QP went to RESET or is closed. No completion is reported for them.
	Reset()
}

// Gone is returned by NextRecv and NextRecvFrom if the program that posts requests has ended. The
// QP does not answer its peer any more.
var Gone = new(RecvRequest)

// NoQueue is returned by NextRecvFrom if the shared receive queue does not exist, or is not one of the QP's domain. The
// peer's request is then invalid: a receive request cannot be waited for (IBTA volume 1, annex A14).
var NoQueue = new(RecvRequest)

// SharedFront is the Front of a QP whose receive requests come from a shared receive queue.
type SharedFront interface {
	Front

	// GiveBack returns a request that NextRecv returned and no message used. The queue hands
	// it out again before others, to any of its QPs.
	GiveBack(r *RecvRequest)
}

// XRCFront is the Front of a QP of type ibv.XRCRecv, whose messages name the shared
// receive queue that they use.
type XRCFront interface {
	Front

	// NextRecvFrom is NextRecv for the shared receive queue srq.
	NextRecvFrom(srq uint32) *RecvRequest
}

// DCTFront is the Front of a QP of type ibv.DCT.
type DCTFront interface {
	Front

	// Joined returns the Front of the QP that executes the requests of one more
	// initiator. It has no send requests, and the lock that its methods are called with
	// is that of its own QP.
	Joined() Front

	// Left ends the use of a Front that Joined has returned. unfinished is the receive
	// request that an incomplete message had taken, or nil: it is used for another one.
	Left(f Front, unfinished *RecvRequest)
}

// TraceFront is a Front that observes the packets of its QP.
type TraceFront interface {
	Front

	// Retransmitted is [roce.Handler.Retransmitted].
	Retransmitted(psn, count uint32)

	// Stalled is [roce.Handler.Stalled].
	Stalled(why roce.Stall)

	// Unchecked observes a transfer through a key with a signature that ends inside a block. Nobody checks its last rest
	// bytes, because no field follows them.
	Unchecked(key *MKey, rest uint64)
}
