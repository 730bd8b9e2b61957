package engine

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// SendRequest is a request of the send queue. The front owns its memory and may use it
// again after [Front.SendDone] was called for it; from the end of [Front.TakeSend] to there only
// the engine touches it. The exported fields are set by the front, Flags before it hands the
// request out and the others at the latest in TakeSend, and the engine changes none of them.
type SendRequest struct {
	ID    uint64 // named in error texts
	Op    ibv.WROp
	Flags ibv.SendFlags // the engine uses SendFence and SendSolicited; the front decides about completions

	// The data of SEND and WRITE is Inline, if HasInline is set, followed by the bytes of
	// SGEs. The data of READ and the old value of an atomic go to SGEs.
	SGEs      []rdma.SGE
	Inline    []byte
	HasInline bool

	// Gathered is the data of SGEs, a single range, if the front has read it with
	// [QP.Gather].
	Gathered []byte

	Imm uint32 // SEND and WRITE with immediate: in host order

	// InvKey is the key that LOCAL_INV frees here, or SEND with invalidate at the peer.
	InvKey uint32

	RKey       uint32 // WRITE, READ and atomics
	RemoteAddr uint64 // WRITE, READ and atomics
	CompareAdd uint64 // compare and swap: the value to compare with; fetch and add: the value to add
	Swap       uint64 // compare and swap: the value to store

	// Masked atomics. Their word has the bytes of SGEs: 4 or 8.
	CompareMask uint64 // as in roce.Atomic
	SwapMask    uint64 // as in roce.Atomic

	// The peer of a datagram (UD), or the target of a request (DCI).
	AH        *roce.AH // from Device.NewAH
	RemoteQPN uint32   // of a DCI: the number of the DCT
	QKey      uint32   // UD
	DCKey     uint64   // DCI: the access key of the DCT

	RemoteSRQN uint32 // XRC: the number of the peer's SRQ

	Configure *Configuration // WRConfigure
	Bind      *Binding       // WRBindMW

	// Cancelled makes the request do nothing and succeed. The front may set it as long as
	// the request was not taken.
	Cancelled bool

	exec execution
}

// Configuration is the content of a request that configures a memory key. It
// has only the attributes to set, and is merged with the key's configuration in
// force when it executes. A configuration that does not execute has no effect.
type Configuration struct {
	Key *MKey
	Tag *uint8 // the new low byte of the key's number

	ResetSignature bool
	Access         *rdma.Access
	Start          *uint64 // keydoor.Update.Start

	PD               *PD     // moves the key to this protection domain; nil: no change
	RemoteInvalidate *bool   // whether the peer may free the key; nil: no change
	Owner            *uint32 // the number of the QP that the key belongs to, or 0: a window of type 2 of a guest; nil: no change

	// Free frees the key; attributes other than Tag and PD have no effect then. LOCAL_INV,
	// in contrast, fails for a key that is free.
	Free bool

	// At most one of the three layouts. HasList and HasInterleaved make an empty one a
	// layout, too. Memory is memory of the front's own, for example the pages of a guest.
	Memory         mkey.List
	HasList        bool
	List           []rdma.SGE
	HasInterleaved bool
	Repeat         uint32
	Interleaved    []rdma.Strided

	Signature   *mkey.Signature
	Transaction *keydoor.Transaction
	Crypto      *mkey.Crypto

	Space int // bytes that the request has for entries (16 each) and attributes (64 each); 0: no limit

	prepared keydoor.Prepared // result of Prepare
}

// Binding is the content of a request that binds a memory window to a part of a region.
type Binding struct {
	Window *Window
	Number uint32 // new number of the window: its index with another tag
	LKey   uint32 // key of the region
	Addr   uint64
	Length uint64      // 0 unbinds a window of type 1
	Access rdma.Access // remote rights; with ZeroBased the peer's addresses begin at 0
}

// RecvRequest is a request of a receive queue. The front owns its memory and may use it
// again after [Front.RecvDone] was called for it.
type RecvRequest struct {
	ID   uint64
	SGEs []rdma.SGE
	PD   *PD // PD in which SGEs are looked up, for a shared receive queue; nil: the QP's
	Slot any // for the front, which finds its own state of the request by it; the engine does not use it
}

// Completion is the end of a request. It is valid during the call that it is given to.
type Completion struct {
	Status rdma.Status
	Err    error // reason of a failure in words; not nil if Status is not StatusSuccess

	// PSN, Packets and Again describe the packets of a send request: the first PSN, how many
	// there are, and how many were sent again. A READ has the PSNs of its responses, a local
	// request has no packets. PSN of a receive request is that of its message's last packet.
	PSN, Packets, Again uint32

	// The following fields are valid with StatusSuccess only.

	ByteLen uint32 // bytes that were received, read or written
	SrcQP   uint32 // the peer's QP

	// The following fields are set for receive requests only.

	Op        rdma.Opcode  // OpRecv or OpRecvRDMAWithImm
	Flags     rdma.WCFlags // which of the fields below are valid
	Imm       uint32       // in host order
	InvKey    uint32       // the key that was freed
	Solicited bool

	// The following fields are set for datagrams only.

	Src       netip.Addr // address of the sender
	SGIDIndex int        // GID table entry that received the datagram; -1: a multicast group
	Priority  uint8      // IEEE 802.1p, of a frame with a VLAN tag
}

// failed returns the completion of a request that ended with st. err is the reason, or nil
// if it is not known.
func failed(st rdma.Status, err error) Completion {
	if err == nil {
		err = failure.New("execute a request", syscall.EIO, "%v", st)
	}
	return Completion{Status: st, Err: err}
}

// failedRecv is failed for a receive request.
func failedRecv(st rdma.Status, err error) Completion {
	c := failed(st, err)
	c.Op = rdma.OpRecv
	return c
}

// BadSignature is a bad signature that a transfer found. The record is the one that
// [MKey.Check] returns.
type BadSignature struct {
	Key    *MKey
	Record mkey.BadBlock
	Recv   bool // the transfer was a receive request of this side, or the peer's READ or WRITE
}
