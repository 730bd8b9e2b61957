package adapter

// QPType is the type of a QP; the values are those of enum ibv_qp_type.
type QPType uint8

// The types of QPs.
const (
	RC      QPType = 2
	UC      QPType = 3
	UD      QPType = 4
	XRCSend QPType = 9
	XRCRecv QPType = 10
)

// State is the state of a QP; the values are those of enum ibv_qp_state.
type State uint8

// The states of a QP.
const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state?"
}

// CQAttr is what a CQ is created with (mlx5_ib_create_cq and the uverbs attributes).
type CQAttr struct {
	Entries       int    // of the ring: a power of two
	CQESize       int    // 64 or 128
	Buf, DB       uint64 // addresses of the ring and of the doorbell record
	UAR           *UAR   // where it is armed; may be nil
	Flags         uint16 // mlx5_ib_create_cq.flags
	Vector        int
	Timestamp     bool
	IgnoreOverrun bool
	Channel       bool // somebody waits for completion events
}

// QPCap is the sizes of a QP's queues (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInlineData uint32
}

// QPAttr is what a QP is created with (mlx5_ib_create_qp and the uverbs attributes).
type QPAttr struct {
	Type           QPType
	PD             *PD
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ
	XRCD           *XRCD
	Buf            uint64 // of the receive queue, and of the send queue behind it
	SQBuf          uint64 // of the send queue, if it stands on its own (raw packet, underlay); 0 otherwise
	DB             uint64 // address of the doorbell record
	SQCount        uint32 // send queue blocks of 64 bytes
	RQCount        uint32 // receive requests
	RQShift        uint32 // log2 of a receive request's size
	Flags          uint32 // mlx5_ib_create_qp.flags
	UIDX           uint32
	UAR            *UAR
	SigAll         bool
	CreateFlags    uint32 // enum ib_uverbs_qp_create_flags
	Cap            QPCap
}

// AttrMask says which fields of QPModify are set; the values are those of enum
// ibv_qp_attr_mask.
type AttrMask uint32

// The fields of QPModify.
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
	AttrRateLimit       AttrMask = 1 << 25
)

// AHAttr is an address (struct ibv_ah_attr with its GRH).
type AHAttr struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     bool
	Port         uint8
}

// QPModify is what Modify sets and Query returns (struct ib_uverbs_modify_qp).
type QPModify struct {
	State, CurState State
	PathMTU         uint8 // enum ibv_mtu
	PathMigState    uint8
	QKey            uint32
	RQPSN, SQPSN    uint32
	DestQPN         uint32
	AccessFlags     uint32 // enum ibv_access_flags
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	SQDAsyncNotify  bool
	SQDraining      bool
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	Port, AltPort   uint8
	Timeout         uint8
	AltTimeout      uint8
	RetryCnt        uint8
	RNRRetry        uint8
	AV, AltAV       AHAttr
	RateLimit       uint32
}

// SRQAttr is what an SRQ is created with (mlx5_ib_create_srq and the uverbs attributes).
type SRQAttr struct {
	Type     int // 0: basic, 1: XRC
	PD       *PD
	XRCD     *XRCD
	CQ       *CQ // of an XRC SRQ
	Buf, DB  uint64
	MaxWR    uint32 // requests that the ring holds: a power of two
	MaxSGE   uint32
	WQEShift uint32 // log2 of a request's size; 0: from MaxSGE as libmlx5 computes it
	Limit    uint32
	Flags    uint32
	UIDX     uint32
}
