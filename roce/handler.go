package roce

import "net/netip"

// Source reads the bytes of one message as they appear on the wire. Offset 0 is the
// message's first byte.
//
// ReadAt fills all of p or returns an error. Offsets rise from call to call
// except when packets are sent again, so a Source is built for reading in
// sequence and able to go back to any offset. It is called with the QP's lock
// held, never from two goroutines at once, and must not keep p.
//
// An error of a requester's Source ends the request with [StatusLocProtErr] unless it
// wraps a [StatusError]; one of a responder's Source makes a NAK of
// [NAKRemoteOperational] unless it wraps a [NAKError]. Either way the QP goes to the
// error state.
type Source interface {
	ReadAt(p []byte, off uint64) error
}

// A Viewer is a Source with bytes in memory. The transport copies those in the same pass
// that computes the packet's CRC.
type Viewer interface {
	// View returns n bytes of the message, from off on. It returns nil if they do
	// not lie in one piece or may not be read; the transport then calls ReadAt. The
	// bytes are read before the QP's lock is released.
	View(off uint64, n int) []byte
}

// Sink takes the bytes of one message in order, each byte once: retransmitted
// packets never reach it twice.
//
// Write takes all of p or returns an error. It is called with the QP's lock
// held and must not keep p, which is a slice of the receive buffer. It is not
// called for a message of no bytes. Errors are treated as those of a [Source]
// are.
type Sink interface {
	Write(p []byte) error
}

// A Placer is a Sink with memory as its destination. The transport copies the bytes to it
// in the same pass that checks the packet's CRC.
type Placer interface {
	// Place returns the memory for the next n bytes of the message. It returns nil if
	// that is not one piece or may not be written; the transport then calls Write.
	// The transport may write damaged bytes there until it calls Placed.
	Place(n int) []byte

	// Placed accepts the n bytes that were written to the memory of Place. Its errors
	// are those of Write.
	Placed(n int) error
}

// Op is the operation of a [Work]. The values are those of enum ibv_wr_opcode, except for
// OpLocal.
type Op uint8

// The operations. UC has SEND and WRITE without OpSendInv, UD has OpSend and OpSendImm.
const (
	OpWrite    Op = 0 // RDMA WRITE
	OpWriteImm Op = 1 // RDMA WRITE with immediate
	OpSend     Op = 2
	OpSendImm  Op = 3 // SEND with immediate
	OpRead     Op = 4 // RDMA READ
	OpCmpSwap  Op = 5 // compare and swap, 8 bytes
	OpFetchAdd Op = 6 // fetch and add, 8 bytes
	OpSendInv  Op = 9 // SEND with invalidate

	// OpLocal is work that puts nothing on the wire and was carried out when
	// Next returned it. It completes with Work.Status after everything before
	// it and before everything behind it.
	OpLocal Op = 0xff
)

// MaxMessage is the length of the longest message.
const MaxMessage = 1 << 31

// Work is one send-side request. The Handler owns its memory and may use it
// again once Completed was called for it; in between only the QP touches it.
type Work struct {
	Op     Op
	Status Status // OpLocal only: how it ended. Anything but Success puts the QP in the error state.

	Solicited bool   // SEND and WRITE with immediate: ask for a solicited event
	Imm       uint32 // immediate data, in host order
	InvKey    uint32 // OpSendInv: the key that the peer is to invalidate

	Src    Source // SEND and WRITE; nil if Length is 0
	Dst    Sink   // READ; nil if Length is 0
	Length uint32 // bytes of SEND, WRITE and READ, at most MaxMessage

	AH      *AH    // UD: the destination ...
	DestQPN uint32 // ... its QP number, 24 bits ...
	QKey    uint32 // ... and its Q_Key; one with the highest bit set means the QP's own
	SRQ     uint32 // XRC: the shared receive queue of the peer, 24 bits

	RKey       uint32 // WRITE, READ and atomics
	RemoteAddr uint64 // likewise

	CompareAdd uint64 // OpCmpSwap: the value to compare with; OpFetchAdd: the value to add
	Swap       uint64 // OpCmpSwap: the value to store
	Orig       uint64 // set before Completed: the value that stood there

	// Err is set before Completed with a status other than StatusSuccess and
	// StatusWRFlushErr: the reason in words.
	Err error

	progress progress
}

// RecvEvent describes a message that used up a receive request.
type RecvEvent struct {
	Op        Op     // OpSend or OpWriteImm, whatever variant came
	Length    uint32 // bytes of the message; for OpWriteImm those written
	HasImm    bool
	HasInv    bool
	Solicited bool
	Imm       uint32 // immediate data, in host order; if HasImm
	InvKey    uint32 // the key that Handler.Invalidate was just called for; if HasInv

	// UD only. The Sink got a global route header of 40 bytes in front of the
	// payload; Length counts it.
	GRH    bool
	SrcQPN uint32
	Src    netip.AddrPort // the sender's socket; RoCEv2 senders may use any port
}

// XRCHandler is a [Handler] of a QP of TypeXRCRecv, whose requests name the shared receive
// queue that they use.
type XRCHandler interface {
	Handler

	// BeginRecvFrom is BeginRecv for the shared receive queue srq.
	BeginRecvFrom(srq uint32) (Sink, NAK)
}

// Failure is the reason why a QP put itself in the error state.
type Failure struct {
	// Status is the requester's status of the Work that failed; it is what
	// Completed was called with. For a failure of the responder it is the
	// status that belongs to the NAK, and the one for a receive request in
	// progress.
	Status Status
	NAK    NAK   // the NAK that the responder sent; NAKNone if the requester failed
	Err    error // the reason in words, as in Work.Err
}

// Handler is the owner of a [QP]: it supplies work and memory, and receives completions.
// One Handler belongs to one QP.
//
// Every method is called with that QP's lock held, from whichever goroutine
// moves its packets: the port's receive or transmit goroutine, one that polls the
// port, or one that called Kick or changes the state of this QP or of another. So
// the calls of one QP never overlap. They must not block and must not call back into
// the QP, except for [QP.Wake]. A Handler may take its own locks in them; it must then
// not hold those locks when it calls methods of the QP, except for [QP.Wake].
type Handler interface {
	// Next returns the next send-side request, in the order of the send queue,
	// or nil if none can start now. It is called in RTS, when there is room to
	// start a request: after Kick or Wake, and after every round of completions,
	// until it returns nil. Local requests, and requests whose memory was refused,
	// are returned as OpLocal with their status. The Handler implements fences: it
	// returns nil while a fenced request waits for completions.
	Next() *Work

	// Completed returns w to the Handler, once for each Work, in the order in which
	// Next returned them. w.Dst has taken all bytes if st is StatusSuccess. The
	// Handler closes the memory of w here. It returns st, or another status if
	// closing failed; a status other than StatusSuccess puts the QP in the error
	// state. After the first Completed with a failure, all requests that were
	// started complete with StatusWRFlushErr, and then Failed is called.
	Completed(w *Work, st Status) Status

	// OpenWrite opens length bytes at va for an RDMA WRITE of the peer, when
	// its first packet arrived. It is not called for a WRITE of no bytes, whose
	// key is not looked at (C9-88).
	OpenWrite(rkey uint32, va uint64, length uint32) (Sink, NAK)

	// EndWrite closes a Sink of OpenWrite. If done, all bytes were written, and a
	// NAK other than NAKNone is sent to the peer instead of the acknowledgement.
	// Otherwise the QP was reset or failed before the end of the message.
	EndWrite(s Sink, done bool) NAK

	// OpenRead opens length bytes at va for an RDMA READ of the peer: when the
	// request arrived, and again, whole, when the peer lost responses and asks for
	// a part again. It is not called for a READ of no bytes.
	//
	// reported is 0 the first time, then the largest value that EndRead returned for
	// this READ: faults in the data up to there were reported and are not reported again.
	OpenRead(rkey uint32, va uint64, length uint32, reported uint64) (Source, NAK)

	// EndRead closes a Source of OpenRead: the last response was built, the QP was
	// reset or failed, or the peer requests the READ again. It returns how far the data
	// was checked, in units of the Handler, which OpenRead gets if the READ is repeated.
	EndRead(s Source) (reported uint64)

	// Atomic carries out op (OpCmpSwap or OpFetchAdd, with a and b as
	// CompareAdd and Swap of a Work) on the 8 bytes at va, which is a multiple
	// of 8, and returns what stood there. It is called once for each request,
	// however often that is repeated.
	Atomic(op Op, rkey uint32, va uint64, a, b uint64) (orig uint64, nak NAK)

	// BeginRecv takes the next receive request, when the first packet of a SEND
	// arrived or, for a WRITE with immediate, before its last packet is taken;
	// the Sink is then not used. NAKRNR if there is none.
	BeginRecv() (Sink, NAK)

	// ReturnRecv gives the receive request that BeginRecv took back: its message
	// was dropped on the way. The next BeginRecv returns the same request again,
	// from its beginning. Only UC QPs call it.
	ReturnRecv()

	// Invalidate frees the key that a SEND with invalidate names, when all its
	// bytes are in place and before Received.
	Invalidate(rkey uint32) NAK

	// Received ends the receive request that BeginRecv took: the message is
	// complete. A NAK other than NAKNone (the memory could not be finished) is sent
	// to the peer instead of the acknowledgement. If the message never completes,
	// Received is not called: Failed is, or the QP is taken to another state.
	Received(ev RecvEvent) NAK

	// Failed is called when the QP put itself in the error state, after Completed of
	// all Work that was started. QP.Fail does not call it.
	Failed(f Failure)
}
