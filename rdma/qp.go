package rdma

import (
	"fmt"
	"net/netip"
)

// QPType is the transport service of a QP. The values are those of enum ibv_qp_type.
type QPType uint8

// The QP types.
const (
	GSI     QPType = 1  // the unreliable datagram QP with number 1, for management datagrams
	RC      QPType = 2  // reliable connection
	UC      QPType = 3  // unreliable connection: a lost packet drops its message
	UD      QPType = 4  // unreliable datagram: one packet a message, each with its own destination
	XRCSend QPType = 9  // requester of an extended reliable connection: each request names a shared receive queue
	XRCRecv QPType = 10 // responder of an extended reliable connection

	// The verbs have one type, IBV_QPT_DRIVER, for both ends of a dynamic connection, so
	// these values are this package's own. Package verbs does not make such QPs.
	DCI QPType = 0xd0 // initiator: each request names its target, to which a connection is made
	DCT QPType = 0xd1 // target of any number of initiators that know its access key
)

var qpTypeNames = map[QPType]string{GSI: "GSI", RC: "RC", UC: "UC", UD: "UD", XRCSend: "XRC_SEND", XRCRecv: "XRC_RECV", DCI: "DCI", DCT: "DCT"}

// String returns the type's name.
func (t QPType) String() string {
	if s, ok := qpTypeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("qp_type(%d)", uint8(t))
}

// State is the state of a QP. The values are those of enum ibv_qp_state.
type State uint8

// The states of a QP. SQE does not occur on a reliable connection.
const (
	StateReset State = 0
	StateInit  State = 1
	StateRTR   State = 2
	StateRTS   State = 3
	StateSQD   State = 4
	StateSQE   State = 5
	StateErr   State = 6
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

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

// GID is a global identifier: an IPv6 address, or an IPv4 address a.b.c.d as
// ::ffff:a.b.c.d.
type GID [16]byte

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address that the GID stands for.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the GID as the tools of libibverbs print it.
func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// AH is the address of a peer (struct ibv_ah_attr, as far as RoCEv2 uses it).
type AH struct {
	DGID         GID
	SGIDIndex    int    // entry of this device's GID table
	UDPPort      uint16 // UDP port of the peer's device; 0 means RoCEv2's 4791
	FlowLabel    uint32 // of 20 bits
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8 // service level

	// The following fields matter on a network of Ethernet frames only. A UDP socket leaves
	// both to the system.
	NextHop    [6]byte // MAC address that packets are sent to
	SourcePort uint16  // UDP port that packets are sent from; 0: RoCEv2's 4791
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

var attrNames = FlagNames{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
	"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH",
	"MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
}

// String returns the names of enum ibv_qp_attr_mask without their prefix, joined by "|".
func (m AttrMask) String() string { return attrNames.Join(uint32(m)) }

// QPModify is the set of attributes of a QP that can be modified (struct ibv_qp_attr).
type QPModify struct {
	State           State
	CurState        State
	SQDAsyncNotify  bool
	AccessFlags     Access // the peer's rights through the QP
	PKeyIndex       int    // must be 0
	Port            int    // must be 1
	QKey            uint32 // UD only
	AV              AH
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

// Datagram reports whether a QP of the type sends datagrams, each with its own destination.
func (t QPType) Datagram() bool { return t == UD || t == GSI }

// MulticastQPN is the destination QP number of datagrams to a multicast group
// (InfiniBand specification, 9.8.1.1).
const MulticastQPN = 0xFFFFFF
