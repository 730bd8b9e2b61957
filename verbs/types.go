package verbs

import (
	"net/netip"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// Aliases for the types of package rdma, so that a program needs only one
// import. The documentation of package rdma lists the names that have no alias.
type (
	Access      = rdma.Access      // rights to memory, or of a peer through a QP
	AH          = rdma.AH          // the address of a peer
	AttrMask    = rdma.AttrMask    // tells which fields of a QPModify are set
	EventType   = rdma.EventType   // type of an asynchronous event
	GID         = rdma.GID         // global identifier
	MTU         = rdma.MTU         // path MTU
	Opcode      = rdma.Opcode      // the operation that a completion reports
	QPModify    = rdma.QPModify    // attributes of a QP
	QPType      = rdma.QPType      // transport service of a QP
	SendFlags   = rdma.SendFlags   // flags of a send request
	SGE         = rdma.SGE         // entry of a scatter/gather list
	State       = rdma.State       // state of a QP
	Status      = rdma.Status      // result of a work request
	StatusError = rdma.StatusError // a Status as an error
	Strided     = rdma.Strided     // entry of an interleaved layout
	WC          = rdma.WC          // work completion
	WCFlags     = rdma.WCFlags     // tells which fields of a WC are valid
)

// Aliases for types of packages mkey and sig that programs with memory keys use.
type (
	Signature = mkey.Signature // block signature attributes of a memory key
	Crypto    = mkey.Crypto    // crypto attributes of a memory key
	BadBlock  = mkey.BadBlock  // record of a bad signature
	Format    = sig.Format     // signature of one domain
)

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return rdma.GIDOf(a) }

// MTUOf returns the MTU with the given number of bytes. It returns false if
// there is none.
func MTUOf(bytes int) (MTU, bool) { return rdma.MTUOf(bytes) }

// The access flags. With ZeroBased the addresses of a region are offsets into it.
const (
	LocalWrite   = rdma.LocalWrite
	RemoteWrite  = rdma.RemoteWrite
	RemoteRead   = rdma.RemoteRead
	RemoteAtomic = rdma.RemoteAtomic
	ZeroBased    = rdma.ZeroBased
)

// The types of QPs.
const (
	RC = rdma.RC // reliable connection
	UC = rdma.UC // unreliable connection
	UD = rdma.UD // unreliable datagram
)

// The statuses of completions.
const (
	StatusSuccess        = rdma.StatusSuccess
	StatusLocLenErr      = rdma.StatusLocLenErr
	StatusLocQPOpErr     = rdma.StatusLocQPOpErr
	StatusLocProtErr     = rdma.StatusLocProtErr
	StatusWRFlushErr     = rdma.StatusWRFlushErr
	StatusMWBindErr      = rdma.StatusMWBindErr
	StatusBadRespErr     = rdma.StatusBadRespErr
	StatusLocAccessErr   = rdma.StatusLocAccessErr
	StatusRemInvReqErr   = rdma.StatusRemInvReqErr
	StatusRemAccessErr   = rdma.StatusRemAccessErr
	StatusRemOpErr       = rdma.StatusRemOpErr
	StatusRetryExcErr    = rdma.StatusRetryExcErr
	StatusRNRRetryExcErr = rdma.StatusRNRRetryExcErr
	StatusRemAbortErr    = rdma.StatusRemAbortErr
	StatusFatalErr       = rdma.StatusFatalErr
	StatusRespTimeoutErr = rdma.StatusRespTimeoutErr
	StatusGeneralErr     = rdma.StatusGeneralErr
)

// The opcodes of completions.
const (
	OpSend            = rdma.OpSend
	OpRDMAWrite       = rdma.OpRDMAWrite
	OpRDMARead        = rdma.OpRDMARead
	OpCompSwap        = rdma.OpCompSwap
	OpFetchAdd        = rdma.OpFetchAdd
	OpLocalInv        = rdma.OpLocalInv
	OpRecv            = rdma.OpRecv
	OpRecvRDMAWithImm = rdma.OpRecvRDMAWithImm
	OpMKeyConfigure   = rdma.OpMKeyConfigure
)

// The flags of a send request.
const (
	SendFence     = rdma.SendFence
	SendSignaled  = rdma.SendSignaled
	SendSolicited = rdma.SendSolicited
	SendInline    = rdma.SendInline
)

// The flags of a completion.
const (
	WithGRH = rdma.WithGRH
	WithImm = rdma.WithImm
	WithInv = rdma.WithInv
)

// The states of a QP.
const (
	StateReset = rdma.StateReset
	StateInit  = rdma.StateInit
	StateRTR   = rdma.StateRTR
	StateRTS   = rdma.StateRTS
	StateSQD   = rdma.StateSQD
	StateSQE   = rdma.StateSQE
	StateErr   = rdma.StateErr
)

// The path MTUs.
const (
	MTU256  = rdma.MTU256
	MTU512  = rdma.MTU512
	MTU1024 = rdma.MTU1024
	MTU2048 = rdma.MTU2048
	MTU4096 = rdma.MTU4096
)

// The fields of QPModify.
const (
	AttrState           = rdma.AttrState
	AttrCurState        = rdma.AttrCurState
	AttrSQDAsyncNotify  = rdma.AttrSQDAsyncNotify
	AttrAccessFlags     = rdma.AttrAccessFlags
	AttrPKeyIndex       = rdma.AttrPKeyIndex
	AttrPort            = rdma.AttrPort
	AttrQKey            = rdma.AttrQKey
	AttrAV              = rdma.AttrAV
	AttrPathMTU         = rdma.AttrPathMTU
	AttrTimeout         = rdma.AttrTimeout
	AttrRetryCnt        = rdma.AttrRetryCnt
	AttrRNRRetry        = rdma.AttrRNRRetry
	AttrRQPSN           = rdma.AttrRQPSN
	AttrMaxRdAtomic     = rdma.AttrMaxRdAtomic
	AttrMinRNRTimer     = rdma.AttrMinRNRTimer
	AttrSQPSN           = rdma.AttrSQPSN
	AttrMaxDestRdAtomic = rdma.AttrMaxDestRdAtomic
	AttrDestQPN         = rdma.AttrDestQPN
)

// The asynchronous events that the device raises.
const (
	EventCQErr            = rdma.EventCQErr
	EventQPFatal          = rdma.EventQPFatal
	EventQPReqErr         = rdma.EventQPReqErr
	EventQPAccessErr      = rdma.EventQPAccessErr
	EventCommEst          = rdma.EventCommEst
	EventSQDrained        = rdma.EventSQDrained
	EventSRQErr           = rdma.EventSRQErr
	EventSRQLimitReached  = rdma.EventSRQLimitReached
	EventQPLastWQEReached = rdma.EventQPLastWQEReached
)
