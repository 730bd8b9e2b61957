package adapter

import "github.com/softmkey/softmkey/rdma"

// The vocabulary of package rdma under the names that a front of the adapter uses.
type (
	// QPType is the type of a QP; the values are those of enum ibv_qp_type.
	QPType = rdma.QPType
	// State is the state of a QP; the values are those of enum ibv_qp_state.
	State = rdma.State
	// AttrMask says which fields of QPModify are set; the values are those of enum
	// ibv_qp_attr_mask.
	AttrMask = rdma.AttrMask
)

// The types of QPs.
const (
	RC      = rdma.RC
	UC      = rdma.UC
	UD      = rdma.UD
	XRCSend = rdma.XRCSend
	XRCRecv = rdma.XRCRecv
)

// The states of a QP.
const (
	Reset = rdma.StateReset
	Init  = rdma.StateInit
	RTR   = rdma.StateRTR
	RTS   = rdma.StateRTS
	SQD   = rdma.StateSQD
	SQE   = rdma.StateSQE
	Err   = rdma.StateErr
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
	AttrAltPath         = rdma.AttrAltPath
	AttrMinRNRTimer     = rdma.AttrMinRNRTimer
	AttrSQPSN           = rdma.AttrSQPSN
	AttrMaxDestRdAtomic = rdma.AttrMaxDestRdAtomic
	AttrPathMigState    = rdma.AttrPathMigState
	AttrCap             = rdma.AttrCap
	AttrDestQPN         = rdma.AttrDestQPN
	AttrRateLimit       = AttrMask(1 << 25)
)
