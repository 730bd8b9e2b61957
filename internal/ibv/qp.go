package ibv

import (
	"github.com/softmkey/softmkey/internal/flags"
	"github.com/softmkey/softmkey/rdma"
)

// The types of QPs that package verbs does not make.
const (
	GSI     rdma.QPType = 1  // the unreliable datagram QP with number 1, for management datagrams
	XRCSend rdma.QPType = 9  // requester of an extended reliable connection: each request names a shared receive queue
	XRCRecv rdma.QPType = 10 // responder of an extended reliable connection

	// The verbs have one type, IBV_QPT_DRIVER, for both ends of a dynamic connection, so
	// these values are this package's own.
	DCI rdma.QPType = 0xd0 // initiator: each request names its target, to which a connection is made
	DCT rdma.QPType = 0xd1 // target of any number of initiators that know its access key
)

// MWBind is the right to bind memory windows to a region.
const MWBind rdma.Access = 1 << 4

// MTU is a path MTU. The values are those of enum ibv_mtu.
type MTU uint8

// The path MTUs.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the payload in bytes that a packet of the MTU carries, or 0 for
// an unknown MTU.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// MTUOf returns the MTU with the given number of bytes. It returns false if
// there is none.
func MTUOf(bytes int) (MTU, bool) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, true
		}
	}
	return 0, false
}

// AttrMask tells which fields of a [QPModify] are set. The values are those of
// enum ibv_qp_attr_mask.
type AttrMask uint32

// The fields of a QPModify.
const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrSQDAsyncNotify  AttrMask = 1 << 2
	AttrAccessFlags     AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrAltPath         AttrMask = 1 << 14
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrPathMigState    AttrMask = 1 << 18
	AttrCap             AttrMask = 1 << 19
	AttrDestQPN         AttrMask = 1 << 20
)

var attrNames = flags.Names{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
	"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH",
	"MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
}

// String returns the names of enum ibv_qp_attr_mask without their prefix, joined by "|".
func (m AttrMask) String() string { return attrNames.Join(uint32(m)) }

// QPModify is the set of attributes of a QP that can be modified (struct ibv_qp_attr).
type QPModify struct {
	State           rdma.State
	CurState        rdma.State
	SQDAsyncNotify  bool
	AccessFlags     rdma.Access // the peer's rights through the QP
	PKeyIndex       int         // must be 0
	Port            int         // must be 1
	QKey            uint32      // UD only
	AV              rdma.AH
	PathMTU         MTU
	Timeout         uint8 // 4.096 µs · 2^Timeout; 0 waits without limit
	RetryCnt        uint8 // 0 to 7
	RNRRetry        uint8 // 0 to 7; 7 retries without limit
	MinRNRTimer     uint8 // 0 to 31
	RQPSN           uint32
	SQPSN           uint32
	MaxRdAtomic     int // limit as requester
	MaxDestRdAtomic int // limit as responder
	DestQPN         uint32
}
