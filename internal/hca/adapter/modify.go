package adapter

import (
	"math/bits"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
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

	// The following fields are set by a guest's driver, which sees Ethernet frames.
	MAC     [6]byte // of the next hop
	UDPPort uint16  // that packets leave from; 0: RoCEv2's 4791
}

// QPModify holds the attributes that Modify sets and Query returns (struct
// ib_uverbs_modify_qp).
type QPModify struct {
	State, CurState rdma.State
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

	loopback bool // the peer is this device, whatever AV says
	exact    bool // a command gives AV, which no kernel has resolved
}

// pathMigMigrated is IBV_MIG_MIGRATED: the only state of a QP without an alternate path.
const pathMigMigrated = 0

// Modify changes the QP's state and attributes as ibv_modify_qp does. As mlx5's driver, it gives a peer neither READs nor
// atomics while max_dest_rd_atomic is 0.
func (q *QP) Modify(a *QPModify, mask ibv.AttrMask) error {
	asked := *a
	asked.MaxRdAtomic, asked.MaxDestRdAtomic = roundedUp(a.MaxRdAtomic), roundedUp(a.MaxDestRdAtomic)
	q.eng.Lock()
	access, depth := q.access, q.depth
	q.eng.Unlock()
	if mask&ibv.AttrAccessFlags != 0 {
		access = a.AccessFlags
	}
	if mask&ibv.AttrMaxDestRdAtomic != 0 {
		depth = a.MaxDestRdAtomic
	}
	if t := q.attr.Type; mask&(ibv.AttrAccessFlags|ibv.AttrMaxDestRdAtomic) != 0 && t != ibv.DCT && t != ibv.DCI {
		asked.AccessFlags, mask = access, mask|ibv.AttrAccessFlags
		if depth == 0 {
			asked.AccessFlags &^= uint32(rdma.RemoteRead | rdma.RemoteAtomic)
		}
	}
	err := q.modify(&asked, mask)
	if err == nil {
		q.eng.Lock()
		q.access, q.depth = access, depth
		q.eng.Unlock()
	}
	return q.ctx.refused("qp", q.number, "modify", err)
}

// roundedUp returns the number of READs and atomics in flight that a QP has if a program asks for n. The context has the
// logarithm, which mlx5's driver rounds up (since Linux 6.13), so that there is no 0.
func roundedUp(n uint8) uint8 {
	if n > engine.MaxRdAtomic { // refused
		return n
	}
	return 1 << bits.Len8(max(n, 1)-1)
}

// attrRateLimit is IBV_QP_RATE_LIMIT, which package rdma lacks because no device of ours
// has it.
const attrRateLimit = ibv.AttrMask(1 << 25)

func (q *QP) modify(a *QPModify, mask ibv.AttrMask) error {
	const op = "modify the QP"
	switch {
	case mask&ibv.AttrAltPath != 0:
		return failure.New(op, syscall.EOPNOTSUPP, "an alternate path: the device has no path migration")
	case mask&ibv.AttrPathMigState != 0 && a.PathMigState != pathMigMigrated:
		return failure.New(op, syscall.EOPNOTSUPP, "path migration state %d: the device has no path migration", a.PathMigState)
	case mask&ibv.AttrCap != 0:
		return failure.New(op, syscall.EOPNOTSUPP, "a new size of the queues: they cannot be resized")
	case mask&attrRateLimit != 0:
		return failure.New(op, syscall.EOPNOTSUPP, "a rate limit: the device has no packet pacing")
	}
	m := ibv.QPModify{
		State: a.State, CurState: a.CurState, SQDAsyncNotify: a.SQDAsyncNotify,
		AccessFlags: rdma.Access(a.AccessFlags &^ accessOptional), PKeyIndex: int(a.PKeyIndex), Port: int(a.Port), QKey: a.QKey,
		PathMTU: ibv.MTU(a.PathMTU), Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, MinRNRTimer: a.MinRNRTimer,
		RQPSN: a.RQPSN & 0xffffff, SQPSN: a.SQPSN & 0xffffff, MaxRdAtomic: int(a.MaxRdAtomic), MaxDestRdAtomic: int(a.MaxDestRdAtomic), DestQPN: a.DestQPN,
	}
	if a.State == rdma.StateRTS && q.attr.Type == ibv.DCI && mask&ibv.AttrMaxRdAtomic == 0 {
		m.MaxRdAtomic, mask = 1, mask|ibv.AttrMaxRdAtomic // programs need not say it
	}
	if mask&ibv.AttrAV != 0 {
		find := q.ctx.dev.address
		switch {
		case a.loopback:
			find = q.ctx.dev.loopback
		case q.attr.Type == ibv.DCT || q.attr.Type == ibv.DCI:
			find = q.ctx.dev.origin
		}
		to, err := find(op, a.AV)
		if err != nil {
			return err
		}
		if !a.exact && q.attr.Type != ibv.DCT && q.attr.Type != ibv.DCI {
			to.HopLimit = 0 // the kernel puts that of its route in
		}
		m.AV = to
	}
	if err := q.eng.Modify(m, mask&^ibv.AttrPathMigState); err != nil {
		return err
	}
	if mask&ibv.AttrAV != 0 {
		q.eng.Lock()
		q.sq.av = a.AV
		q.eng.Unlock()
	}
	q.setState(q.eng.State(), byProgram, q.attributes(&m, mask)...)
	if mask&ibv.AttrState != 0 && a.State == rdma.StateReset {
		// The driver clears the doorbell record next. A scan may have read the old one, and
		// would take its requests for new ones once the QP is connected again.
		q.ctx.forgetPlan()
	}
	return nil
}

// attributes returns the attributes of m that a trace has: the rights of peers, the path, and how often and how
// long the QP tries.
func (q *QP) attributes(m *ibv.QPModify, mask ibv.AttrMask) (fields []Field) {
	if !q.ctx.tracing() {
		return nil
	}
	if mask&ibv.AttrAV != 0 {
		local := q.ctx.dev.eng.Port().Addrs()[m.AV.SGIDIndex].Addr()
		fields = append(fields, value("local", local), value("remote", netip.AddrFrom16(m.AV.DGID).Unmap()))
	}
	if mask&ibv.AttrAccessFlags != 0 {
		fields = append(fields, value("access", regionAccessNames(uint32(m.AccessFlags))))
	}
	for _, f := range []struct {
		mask ibv.AttrMask
		name string
		v    int
	}{
		{ibv.AttrDestQPN, "dest_qp", int(m.DestQPN)}, {ibv.AttrPathMTU, "path_mtu", m.PathMTU.Bytes()}, {ibv.AttrRQPSN, "rq_psn", int(m.RQPSN)},
		{ibv.AttrMaxDestRdAtomic, "max_dest_rd_atomic", m.MaxDestRdAtomic}, {ibv.AttrMinRNRTimer, "min_rnr_timer", int(m.MinRNRTimer)},
		{ibv.AttrSQPSN, "sq_psn", int(m.SQPSN)}, {ibv.AttrTimeout, "timeout", int(m.Timeout)}, {ibv.AttrRetryCnt, "retry_cnt", int(m.RetryCnt)},
		{ibv.AttrRNRRetry, "rnr_retry", int(m.RNRRetry)}, {ibv.AttrMaxRdAtomic, "max_rd_atomic", m.MaxRdAtomic},
	} {
		if mask&f.mask != 0 {
			fields = append(fields, value(f.name, uint32(f.v)))
		}
	}
	return fields
}

// Query returns the QP's attributes, state and sizes.
func (q *QP) Query() (QPModify, QPCap) {
	m := q.eng.Query()
	a := QPModify{
		State: rdma.State(m.State), CurState: rdma.State(m.State), PathMTU: uint8(m.PathMTU), QKey: m.QKey, RQPSN: m.RQPSN, SQPSN: m.SQPSN, DestQPN: m.DestQPN,
		AccessFlags: uint32(m.AccessFlags), PKeyIndex: uint16(m.PKeyIndex), MaxRdAtomic: uint8(m.MaxRdAtomic), MaxDestRdAtomic: uint8(m.MaxDestRdAtomic),
		MinRNRTimer: m.MinRNRTimer, Port: uint8(m.Port), Timeout: m.Timeout, RetryCnt: m.RetryCnt, RNRRetry: m.RNRRetry,
	}
	a.Port = 1 // also in RESET, before a program has chosen it: drivers take the port from here
	q.eng.Lock()
	a.AV = q.sq.av
	a.SQDraining = m.State == rdma.StateSQD && q.sq.inFlight() > 0
	q.eng.Unlock()
	c := q.attr.Cap
	// The driver knows the send queue by itself; the receive queue is rounded up.
	c.MaxRecvWR, c.MaxRecvSGE = q.attr.RQCount, 0
	if q.attr.RQCount != 0 {
		c.MaxRecvSGE = 1 << q.attr.RQShift / prm.DataSegSize
	}
	return a, c
}
