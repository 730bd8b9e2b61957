//go:build linux

package uverbs

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// The commands of queue pairs.

// Flags of mlx5_ib_create_qp that are accepted. Two of them allow the device to scatter
// small payloads into completions, which it need not do.
const (
	qpFlagScatterCQE      = 1 << 1
	qpFlagDCT             = 1 << 4 // of a QP of type driver
	qpFlagDCI             = 1 << 5
	qpFlagAllowScatterCQE = 1 << 8
	qpFlagUARPageIndex    = 1 << 10
	qpFlagsKnown          = qpFlagScatterCQE | qpFlagAllowScatterCQE | qpFlagUARPageIndex
)

func (c *command) createQP() error {
	const op = "create QP"
	f := c.file
	var a adapter.QPAttr
	v, err := c.inputs(createQPUser, createQPCap, createQPFlags, uhwIn)
	if err != nil {
		return err
	}
	user, sizes, flags, in := v[0], v[1], v[2], v[3] // in is struct mlx5_ib_create_qp
	typ, err := c.need(createQPType, op)
	if err != nil {
		return err
	}
	driver := in.u32(28)
	if a.Type, driver, err = qpType(typ, driver); err != nil {
		return err
	}
	if h, ok := c.value(createQPPD); ok {
		if a.PD, err = c.pd(uint32(h)); err != nil {
			return err
		}
	}
	for id, cq := range map[uint16]**adapter.CQ{createQPSendCQ: &a.SendCQ, createQPRecvCQ: &a.RecvCQ} {
		if h, ok := c.value(id); ok {
			o, err := get[*cqObject](&f.objects, h)
			if err != nil {
				return err
			}
			*cq = o.CQ
		}
	}
	if h, ok := c.value(createQPSRQ); ok {
		s, err := get[*srqObject](&f.objects, h)
		if err != nil {
			return err
		}
		a.SRQ = s.SRQ
	}
	var domain *xrcdObject
	if h, ok := c.value(createQPXRCD); ok {
		if domain, err = c.xrcd(h); err != nil {
			return err
		}
		a.XRCD = domain.XRCD
	}
	if c.has(createQPIndTable) || c.has(createQPSourceQPN) {
		return failure.New(op, syscall.EOPNOTSUPP, "RSS and QPs on another QP's number are not offered")
	}
	const (
		blockSelfMcast = 1 << 1  // IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK
		sigAll         = 1 << 12 // IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	)
	if bad := flags.u32(0) &^ (sigAll | blockSelfMcast); bad != 0 {
		return failure.New(op, syscall.EOPNOTSUPP, "create flags %#x: %#x are not supported", flags.u32(0), bad)
	}
	if bad := driver &^ qpFlagsKnown; bad != 0 {
		return failure.New(op, syscall.EOPNOTSUPP, "driver flags %#x: %#x are not supported", in.u32(28), bad)
	}
	a.BlockSelfMcast = flags.u32(0)&blockSelfMcast != 0
	a.SigAll = flags.u32(0)&sigAll != 0
	a.Cap = adapter.QPCap{MaxSendWR: sizes.u32(0), MaxRecvWR: sizes.u32(4), MaxSendSGE: sizes.u32(8), MaxRecvSGE: sizes.u32(12), MaxInlineData: sizes.u32(16)}
	if a.Type == ibv.DCT {
		a.DCKey = in.u64(40)
	}
	a.SQCount, a.RQCount, a.RQShift, a.UIDX = in.u32(16), in.u32(20), in.u32(24), in.u32(32)
	mem, err := c.memory()
	if err != nil {
		return err
	}
	// The send queue follows the receive queue.
	a.RQ, a.DB = adapter.Range(mem, in.u64(0)), adapter.Range(mem, in.u64(8))
	a.SQ = a.RQ.From(uint64(a.RQCount) << a.RQShift)
	if uar := f.uars[in.u32(36)]; uar != nil {
		a.UAR = uar.UAR
	}
	o := &qpObject{xrcd: domain, typ: a.Type, cap: a.Cap, sigAll: a.SigAll, eventCounts: eventCounts{user: user.u64(0)}}
	if o.async, err = f.asyncOf(c, createQPEvents); err != nil {
		return err
	}
	h, err := f.create(o, &o.regions, func() (key any, err error) {
		o.QP, err = f.ctx.CreateQP(a)
		return o.QP, err
	})
	if err != nil {
		return err
	}
	o.xrcd.use()
	c.give(createQPHandle, uint64(h))
	_, o.cap = o.Query()
	if a.RQCount > 0 { // the ring is larger than the requested size
		const dataSegment = 16
		o.cap.MaxRecvWR, o.cap.MaxRecvSGE = a.RQCount, 1<<min(a.RQShift, 16)/dataSegment
	}
	return outputs(c.output(createQPAnswerCap, qpCap(o.cap)), c.output32(createQPAnswerNumber, o.Number()), c.output(uhwOut, make([]byte, 40)))
}

// qpType returns the type of a QP that a program asks for, and the driver's flags without those
// that are a part of the type.
func qpType(typ uint64, flags uint32) (rdma.QPType, uint32, error) {
	const op, rawPacket, driver = "create QP", 8, 0xff // IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER
	t := rdma.QPType(typ)
	switch {
	case typ == driver && flags&(qpFlagDCT|qpFlagDCI) == qpFlagDCT:
		return ibv.DCT, flags &^ qpFlagDCT, nil
	case typ == driver && flags&(qpFlagDCT|qpFlagDCI) == qpFlagDCI:
		return ibv.DCI, flags &^ qpFlagDCI, nil
	case uint64(t) == typ && (t == rdma.RC || t == rdma.UC || t == rdma.UD || t == ibv.XRCSend || t == ibv.XRCRecv):
		return t, flags, nil
	case typ == rawPacket || typ == driver:
		return 0, 0, failure.New(op, syscall.EOPNOTSUPP, "QP type %d with driver flags %#x: the device has RC, UC, UD, XRC and DC (DCT or DCI), and no raw packets", typ, flags)
	}
	return 0, 0, failure.New(op, syscall.EINVAL, "QP type %d is not known", typ)
}

// qpCap returns struct ib_uverbs_qp_cap.
func qpCap(a adapter.QPCap) []byte {
	r := make(fields, 20)
	for i, v := range []uint32{a.MaxSendWR, a.MaxRecvWR, a.MaxSendSGE, a.MaxRecvSGE, a.MaxInlineData} {
		r.put32(4*i, v)
	}
	return r
}

func (c *command) destroyQP() error {
	const op = "destroy QP"
	o, err := named[*qpObject](c, destroyQPHandle, op)
	if err != nil {
		return err
	}
	if n := len(o.groups); n > 0 { // the kernel does not detach it
		return failure.New(op, syscall.EBUSY, "QP %#x is attached to multicast groups: %d", o.Number(), n)
	}
	if _, err := remove[*qpObject](c, destroyQPHandle, op); err != nil {
		return err
	}
	c.file.forget(o.QP)
	o.xrcd.leave()
	c.file.maps.leave(o.regions)
	return c.output32(destroyQPAnswer, o.async.take(o.user, &o.asyncEvents))
}

// openQP answers OPEN_QP: struct ib_uverbs_open_qp, whose pd_handle is an XRCD's.
func (c *command) openQP(x *xrcdObject, in fields) error {
	q, err := c.file.ctx.OpenQP(in.u32(20), rdma.QPType(in.u8(24)), x.XRCD)
	if err != nil {
		return err
	}
	o := &qpObject{QP: q, typ: rdma.QPType(in.u8(24)), opened: true, xrcd: x, eventCounts: eventCounts{user: in.u64(8)}}
	_, o.cap = o.Query()
	o.async, _ = c.file.asyncOf(c, noAttr)
	h, err := c.file.objects.add(o)
	if err != nil {
		return err
	}
	o.xrcd.use()
	c.file.know(q, o)
	r := make(fields, 32)
	r.put32(0, h)
	r.put32(4, q.Number())
	return c.output(coreOut, r)
}

// modifyQP answers MODIFY_QP in both forms: struct ib_uverbs_ex_modify_qp.
func (c *command) modifyQP(o *qpObject, in fields) error {
	m, mask := parseModify(in)
	if err := checkModify(o.typ, &m, mask); err != nil {
		return err
	}
	if err := o.Modify(&m, ownAttrs(o.typ, mask)); err != nil {
		return err
	}
	r := make(fields, 8)
	r.put32(4, 8)           // response_length
	uhw := make(fields, 16) // struct mlx5_ib_modify_qp_resp
	uhw.put32(0, uint32(min(len(uhw), c.room(uhwOut))))
	if o.typ == ibv.DCT {
		uhw.put32(4, o.Number()) // the number of a DCT on its way to RTR
	}
	return outputs(c.output(coreOut, r), c.output(uhwOut, uhw))
}

// checkModify checks what the kernel and its driver refuse before the device is asked: attributes that a state does not
// take (qp_state_table), states to which a program cannot take a queue pair (optab and modify_dct of mlx5's driver), and
// the port and the rate of an address (uverbs' modify_qp, ib_rate_to_mlx5).
func checkModify(typ rdma.QPType, m *adapter.QPModify, mask ibv.AttrMask) error {
	const op = "modify QP"
	if mask&ibv.AttrState != 0 {
		down := m.State == rdma.StateReset || m.State == rdma.StateErr
		switch {
		case m.State == rdma.StateSQD:
			return failure.New(op, syscall.EINVAL, "to SQD: only the device itself takes a QP there")
		case typ == ibv.DCT && down:
			return failure.New(op, syscall.EINVAL, "a DCT to %v: it can only be destroyed", m.State)
		case down && mask&ibv.AttrCurState != 0:
			return failure.New(op, syscall.EINVAL, "the current state on the way to %v, which takes no attribute", m.State)
		case m.State != rdma.StateRTS && mask&ibv.AttrPathMigState != 0:
			return failure.New(op, syscall.EINVAL, "a migration state on the way to %v, which does not take it", m.State)
		}
	}
	if mask&ibv.AttrAV == 0 {
		return nil
	}
	if err := checkPort(op, &m.AV); err != nil {
		return err
	}
	const slowest, fastest = 2, 23 // IBV_RATE_2_5_GBPS to IBV_RATE_800_GBPS; 0: that of the port
	if r := m.AV.StaticRate; r != 0 && (r < slowest || r > fastest) {
		return failure.New(op, syscall.EINVAL, "static_rate %d: must be 0, or %d to %d", r, slowest, fastest)
	}
	return nil
}

// checkPort checks the port of an address.
func checkPort(op string, a *adapter.AHAttr) error {
	if a.Port != 1 {
		return failure.New(op, syscall.EINVAL, "port %d of the address: the device has port 1 only", a.Port)
	}
	return nil
}

// accessOfQP are the access flags that a QP has. The driver ignores others, such as IBV_ACCESS_MW_BIND.
const accessOfQP = uint32(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic)

// ownAttrs removes the attributes of the direction that an XRC QP does not have. The kernel does so too: perftest sets
// the attributes of both directions.
func ownAttrs(t rdma.QPType, mask ibv.AttrMask) ibv.AttrMask {
	switch t {
	case ibv.XRCSend:
		mask &^= ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer
	case ibv.XRCRecv:
		mask &^= ibv.AttrMaxRdAtomic | ibv.AttrRetryCnt | ibv.AttrRNRRetry
	}
	return mask
}

func parseModify(in fields) (adapter.QPModify, ibv.AttrMask) {
	return adapter.QPModify{
		AV:              qpDest(in, 0),
		AltAV:           qpDest(in, 32),
		QKey:            in.u32(72),
		RQPSN:           in.u32(76),
		SQPSN:           in.u32(80),
		DestQPN:         in.u32(84),
		AccessFlags:     in.u32(88) & accessOfQP,
		PKeyIndex:       in.u16(92),
		AltPKeyIndex:    in.u16(94),
		State:           rdma.State(in.u8(96)),
		CurState:        rdma.State(in.u8(97)),
		PathMTU:         in.u8(98),
		PathMigState:    in.u8(99),
		SQDAsyncNotify:  in.u8(100) != 0,
		MaxRdAtomic:     in.u8(101),
		MaxDestRdAtomic: in.u8(102),
		MinRNRTimer:     in.u8(103),
		Port:            in.u8(104),
		Timeout:         in.u8(105),
		RetryCnt:        in.u8(106),
		RNRRetry:        in.u8(107),
		AltPort:         in.u8(108),
		AltTimeout:      in.u8(109),
	}, ibv.AttrMask(in.u32(68))
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// queryQP answers QUERY_QP: struct ib_uverbs_query_qp_resp.
func (c *command) queryQP(o *qpObject, _ fields) error {
	m, _ := o.Query()
	r := make(fields, 128)
	putDest(r, 0, &m.AV)
	putDest(r, 32, &m.AltAV)
	copy(r[64:], qpCap(o.cap))
	r.put32(84, m.QKey)
	r.put32(88, m.RQPSN)
	r.put32(92, m.SQPSN)
	r.put32(96, m.DestQPN)
	r.put32(100, m.AccessFlags&^uint32(rdma.LocalWrite)) // of the adapter's context, which has only the rights of the peer
	r.put16(104, m.PKeyIndex)
	r.put16(106, m.AltPKeyIndex)
	for i, v := range []uint8{
		uint8(m.State), uint8(m.CurState), m.PathMTU, m.PathMigState, b2u(m.SQDraining), m.MaxRdAtomic,
		m.MaxDestRdAtomic, m.MinRNRTimer, m.Port, m.Timeout, m.RetryCnt, m.RNRRetry, m.AltPort, m.AltTimeout, b2u(o.sigAll),
	} {
		r.put8(108+i, v)
	}
	return c.output(coreOut, r)
}

// attach answers ATTACH_MCAST.
func (c *command) attach(o *qpObject, in fields) error {
	gid := [16]byte(in)
	if err := o.AttachMcast(gid); err != nil {
		return err
	}
	if o.groups == nil {
		o.groups = make(map[[16]byte]bool)
	}
	o.groups[gid] = true
	return nil
}

// detach answers DETACH_MCAST.
func (c *command) detach(o *qpObject, in fields) error {
	gid := [16]byte(in)
	err := o.DetachMcast(gid)
	if err == nil {
		delete(o.groups, gid)
	}
	return err
}
