package engine

import (
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// Connect moves a QP with a connection (RC, UC) through RTR to RTS, from INIT
// or, if fromReset is set, from RESET. m has the attributes of all steps.
// modify is the QP's ibv_modify_qp. It is a parameter because package verbs,
// which imports this package, has its own.
func Connect(t rdma.QPType, fromReset bool, m ibv.QPModify, modify func(ibv.QPModify, ibv.AttrMask) error) error {
	rtr := ibv.AttrState | ibv.AttrAV | ibv.AttrPathMTU | ibv.AttrDestQPN | ibv.AttrRQPSN
	rts := ibv.AttrState | ibv.AttrSQPSN
	if t == rdma.RC {
		rtr |= ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer
		rts |= ibv.AttrTimeout | ibv.AttrRetryCnt | ibv.AttrRNRRetry | ibv.AttrMaxRdAtomic
	}
	if fromReset {
		m.State, m.Port = rdma.StateInit, 1
		if err := modify(m, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags); err != nil {
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
