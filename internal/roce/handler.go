package roce

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// Source supplies the bytes of one message as they appear on the wire. Offset 0 is the
// message's first byte.
//
// ReadAt fills all of p or returns an error. Offsets usually rise from call to call. A
// retransmission goes back to an earlier offset, so a Source should be fast at sequential
// reads and must be able to go back to any offset. ReadAt is called with the QP's lock
// held, never concurrently, and must not keep p.
//
// If a requester's Source returns an error, its request fails with [rdma.StatusLocProtErr],
// or with the [rdma.StatusError] that the error wraps. If a responder's Source returns an error,
// the peer receives [NAKRemoteOperational], or the [NAKError] that the error wraps. In
// the second case, and in the first one if it has acknowledgements, the QP enters the error state.
type Source interface {
	ReadAt(p []byte, off uint64) error
}

// A Viewer is a Source whose message is in memory. The transport copies from that memory
// into the packet in the pass that computes the packet's CRC.
type Viewer interface {
	// View returns n bytes of the message from offset off. It returns nil if they are
	// not contiguous or may not be read; the transport then calls ReadAt. The
	// transport reads the bytes before it releases the QP's lock.
	View(off uint64, n int) []byte
}

// Sink receives the bytes of one message in order. Each byte arrives once: the transport
// drops duplicates.
//
// Write consumes all of p or returns an error. It is called with the QP's lock held and
// may keep p, which is part of the receive buffer, until Handler.EndBatch returns. It is not
// called for an empty message. Errors have the same effect as those of a [Source].
type Sink interface {
	Write(p []byte) error
}

// A Placer is a Sink whose destination is memory. The transport copies payload there in
// the pass that verifies the packet's CRC.
type Placer interface {
	// Place returns the memory for the next n bytes of the message. It returns nil if
	// the memory is not contiguous or may not be written; the transport then calls
	// Write. Until Placed is called, the memory may hold damaged bytes.
	Place(n int) []byte

	// Placed accepts the next n bytes, which the transport has written to the memory
	// from Place. Its errors have the same effect as those of Write.
	Placed(n int) error
}

// WRLocal is the Op of a [Work] that sends no packet, because the Handler finished it before
// Next returned it. It completes with Work.Status, in send-queue order.
const WRLocal ibv.WROp = 0xff

// MaxMessage is the largest length of a message in bytes, that of adapters (max_msg_sz).
const MaxMessage = 1 << 30

// Work is one request of the send queue. From Next to Completed it belongs to the QP;
// before and after, to the Handler, which may reuse it.
type Work struct {
	Op     ibv.WROp
	Status rdma.Status // WRLocal only: the status of its completion. A status other than StatusSuccess puts a QP with acknowledgements in the error state.

	Solicited bool   // SEND and WRITE with immediate: request a solicited event at the peer
	Imm       uint32 // immediate data, in host order
	InvKey    uint32 // WRSendInv: the key that the peer invalidates

	Src    Source // SEND and WRITE; nil if Length is 0
	Dst    Sink   // READ; nil if Length is 0
	Length uint32 // bytes of SEND, WRITE and READ, at most MaxMessage; of a masked atomic, 4 or 8

	AH      *AH    // UD and DCI: address of the destination
	DestQPN uint32 // UD: QP number of the destination, 24 bits; DCI: number of the DCT
	DCKey   uint64 // DCI: access key of the DCT
	QKey    uint32 // Q_Key of the datagram; if the highest bit is set, the QP's own is sent
	SRQ     uint32 // XRC: the shared receive queue of the peer, 24 bits

	RKey       uint32 // WRITE, READ and atomics: key of the peer's memory
	RemoteAddr uint64 // WRITE, READ and atomics: address in the peer's memory

	// Atomics. Length is the size of the word, as in Atomic.
	CompareAdd  uint64 // the value to compare with or to add
	Swap        uint64 // WRCmpSwap, WRMaskedCmpSwap: the value to store
	CompareMask uint64 // masked atomics: as in Atomic
	SwapMask    uint64 // WRMaskedCmpSwap: as in Atomic
	Orig        uint64 // the previous value, set before Completed

	// Err is the reason for a failure in words. It is set before Completed is called
	// with a status other than StatusSuccess and StatusWRFlushErr.
	Err error

	progress progress
}

// PSNs returns the first PSN of w, the number of its packets, and how many of them were sent
// more than once. A READ has the PSNs of its responses. Local work has no packets. The values
// are valid from Completed on, until the Handler uses w again.
func (w *Work) PSNs() (first, count, again uint32) {
	p := &w.progress
	return p.first, p.count, p.again
}

// RecvEvent describes a message that consumed a receive request.
type RecvEvent struct {
	Op        ibv.WROp // WRSend for every kind of SEND, or WRWriteImm
	Length    uint32   // bytes of the message; for WRWriteImm, bytes written
	HasImm    bool
	HasInv    bool
	Solicited bool
	Imm       uint32 // immediate data, in host order, if HasImm
	InvKey    uint32 // if HasInv, the key that Handler.Invalidate freed
	PSN       uint32 // PSN of the message's last packet

	// UD only. The Sink received a global route header of 40 bytes before the
	// payload; Length includes it.
	GRH       bool
	SrcQPN    uint32
	Src       netip.AddrPort   // the sender's socket; RoCEv2 senders may use any port
	Route     packetconn.Route // route of the packet
	SGIDIndex int              // GID table entry that received the datagram; -1: a multicast group
}

// Stall is the reason why a requester that has work does not send.
type Stall uint8

// The reasons.
const (
	StallNone   Stall = iota // the requester sends
	StallRNR                 // the peer had no receive request and asked the requester to wait
	StallWindow              // the window to the peer is full
)

// Failure describes why a QP entered the error state.
type Failure struct {
	// Status is the status of the failed Work, as passed to Completed. If the
	// responder failed, Status corresponds to its NAK, and a receive request in
	// progress completes with this status.
	Status rdma.Status
	NAK    NAK   // NAK that the responder sent; NAKNone if the requester failed
	Err    error // reason in words, as in Work.Err
}

// Handler supplies a [QP] with work and memory, and receives its completions. One Handler
// serves one QP.
//
// The QP calls every method with its lock held, so calls never overlap. The calling
// goroutine varies: the port's receive or transmit goroutine, one that calls [Port.Poll],
// or one that calls Kick or changes the state of any QP of the port. Methods must not
// block. They must not call methods of the QP except [QP.Wake]. They may take a lock of
// the Handler, which must then not be held when calling methods of the QP other than
// [QP.Wake].
type Handler interface {
	// Next returns the next request of the send queue, or nil if none can start now.
	// It is called in RTS: after Kick or Wake and after each batch of completions,
	// until it returns nil or a window is full. A local request, and a request whose
	// memory cannot be accessed, is returned as WRLocal with its status. The Handler
	// implements fences: Next returns nil while a fenced request waits for
	// completions.
	Next() *Work

	// Completed returns w to the Handler: once for each Work, in the order in which
	// Next returned them. If st is StatusSuccess, w.Dst has received all bytes. The
	// Handler closes the memory of w here. It returns st, or another status if
	// closing failed. If it returns a status other than StatusSuccess, the QP enters
	// the error state: all outstanding Work completes with StatusWRFlushErr, and
	// Failed is called.
	Completed(w *Work, st rdma.Status) rdma.Status

	// OpenWrite opens length bytes at va for an RDMA WRITE of the peer. It is called
	// when the first packet arrives. It is not called for an empty WRITE, whose key
	// is not checked (C9-88).
	OpenWrite(rkey uint32, va uint64, length uint32) (Sink, NAK)

	// EndWrite closes a Sink from OpenWrite. If done is true, all bytes were written;
	// a NAK other than NAKNone is then sent to the peer instead of the
	// acknowledgement. If done is false, the QP was reset or failed in the middle of
	// the message.
	EndWrite(s Sink, done bool) NAK

	// OpenRead opens length bytes at va for an RDMA READ of the peer. It is called
	// when the request arrives, and again for the whole length when the peer asks for
	// lost responses. It is not called for an empty READ.
	//
	// reported is 0 for the first call. For a repeated one it is the largest value
	// that EndRead returned for this READ: faults in the data before that position
	// have been reported and are not reported again.
	OpenRead(rkey uint32, va uint64, length uint32, reported uint64) (Source, NAK)

	// EndRead closes a Source from OpenRead, because the last response was built, the
	// QP was reset or failed, or the peer repeats the request. It returns the
	// position up to which the data was checked, in a unit of the Handler's choice;
	// OpenRead receives it as reported.
	EndRead(s Source) (reported uint64)

	// Atomic executes a, and returns the previous value. It is called once per request;
	// a repeated request is answered with the recorded result.
	Atomic(a Atomic) (orig uint64, nak NAK)

	// Permits reports whether the QP grants the peer an operation: WRWrite, WRRead, or an
	// atomic. It is called when the request arrives, before its key and address are
	// looked at and before a receive request is taken, and for empty requests, too. A
	// request that is not permitted is answered with [NAKInvalidRequest] (section
	// 9.7.4.1.3).
	Permits(op ibv.WROp) bool

	// BeginRecv takes the next receive request and returns its memory, or NAKRNR if
	// none is posted. It is called when the first packet of a SEND arrives and before
	// the last packet of a WRITE with immediate is written, which does not use the
	// Sink. srq is the shared receive queue that a request to a QP of type XRCRecv names.
	BeginRecv(srq uint32) (Sink, NAK)

	// ReturnRecv returns the receive request that BeginRecv took, because its message
	// was dropped. The next BeginRecv returns the same request, from its beginning.
	// Only UC and UD QPs call it.
	ReturnRecv()

	// Invalidate frees the key that a SEND with invalidate names. It is called after
	// all bytes are written and before Received. If it returns an error, the QP fails with
	// StatusLocAccessErr, and the peer gets no NAK (class J of section 9.9.3.1): its retries end.
	Invalidate(rkey uint32) error

	// Received completes the receive request that BeginRecv took: the message has
	// arrived. If the Handler cannot finish the memory, it returns a NAK other than
	// NAKNone, which is sent to the peer instead of the acknowledgement. If the
	// message never completes, Received is not called; either Failed is called or the
	// QP leaves its state.
	Received(ev RecvEvent) NAK

	// EndBatch is called after each batch of packets of the QP, before they are
	// acknowledged. If it returns a NAK other than NAKNone, the NAK is sent to the peer
	// instead of the acknowledgements of the batch, and the QP enters the error state.
	EndBatch() NAK

	// Established is called when the first request of the peer reaches a QP in RTR, whose own side may not know yet
	// that the connection is made (IBTA volume 1, section 11.6.3.2, Communication Established).
	Established()

	// Retransmitted is called when count packets from psn on are sent and at
	// least the first of them was sent before. For a READ, psn and count are
	// those of the requested responses.
	Retransmitted(psn, count uint32)

	// Stalled is called when the requester stops sending or the reason changes.
	// It is called with StallNone when the requester continues.
	Stalled(why Stall)

	// Failed is called when the QP enters the error state because of a failure, after
	// Completed was called for all outstanding Work. QP.Fail does not call it.
	Failed(f Failure)
}
