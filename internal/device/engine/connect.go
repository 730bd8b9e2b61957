package engine

import "github.com/softmkey/softmkey/rdma"

// Connect moves a QP with a connection (RC, UC) through RTR to RTS, from INIT
// or, if fromReset is set, from RESET. m has the attributes of all steps.
// modify is the QP's ibv_modify_qp. It is a parameter because package verbs,
// which imports this package, has its own.
func Connect(t rdma.QPType, fromReset bool, m rdma.QPModify, modify func(rdma.QPModify, rdma.AttrMask) error) error {
	rtr := rdma.AttrState | rdma.AttrAV | rdma.AttrPathMTU | rdma.AttrDestQPN | rdma.AttrRQPSN
	rts := rdma.AttrState | rdma.AttrSQPSN
	if t == rdma.RC {
		rtr |= rdma.AttrMaxDestRdAtomic | rdma.AttrMinRNRTimer
		rts |= rdma.AttrTimeout | rdma.AttrRetryCnt | rdma.AttrRNRRetry | rdma.AttrMaxRdAtomic
	}
	if fromReset {
		m.State, m.Port = rdma.StateInit, 1
		if err := modify(m, rdma.AttrState|rdma.AttrPKeyIndex|rdma.AttrPort|rdma.AttrAccessFlags); err != nil {
			return err
		}
	}
	m.State = rdma.StateRTR
	if err := modify(m, rtr); err != nil {
		return err
	}
	m.State = rdma.StateRTS
	return modify(m, rts)
}
