package engine

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
)

// goneMemory is the memory of a process that has ended, either in place or, if copied is set, as a
// Space.
type goneMemory struct{ copied bool }

func (m goneMemory) Reach(addr, n uint64, need rdma.Access) error { return nil }
func (m goneMemory) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	return nil, syscall.ESRCH
}
func (m goneMemory) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	if m.copied {
		return m, addr, nil
	}
	return nil, 0, syscall.ESRCH
}
func (m goneMemory) ReadV([]keydoor.Vec) error  { return syscall.ESRCH }
func (m goneMemory) WriteV([]keydoor.Vec) error { return syscall.ESRCH }

// TestEndedProcess checks that a QP whose program has ended does not answer: the peer's retries
// end, as they do when an adapter's QPs are destroyed with the process.
func TestEndedProcess(t *testing.T) {
	for _, copied := range []bool{false, true} {
		for _, op := range []ibv.WROp{ibv.WRWrite, ibv.WRRead, ibv.WRFetchAdd, ibv.WRSend, ibv.WRSendImm} {
			n := inproc.NewNetwork(nil)
			x, y := newEnd(t, n.Listen, "192.0.2.1", QPAttr{}), newEnd(t, n.Listen, "192.0.2.2", QPAttr{})
			connectAs(x, x.qp, y, y.qp, func(m *ibv.QPModify) { m.Timeout, m.RetryCnt = 1, 0 })
			connect(y, y.qp, x, x.qp)
			_, from := x.slice(8, rdma.LocalWrite)
			r, err := y.pd.NewRegion(RegionAttr{Memory: goneMemory{copied}, Length: 4096, Access: rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic})
			y.check(err)
			switch op {
			case ibv.WRSend:
				y.postRecv(&RecvRequest{ID: 9, SGEs: []rdma.SGE{{LKey: r.Number(), Length: 100}}})
			case ibv.WRSendImm:
				y.postRecv(Gone)
			}
			x.post(&SendRequest{ID: 1, Op: op, RKey: r.Number(), SGEs: []rdma.SGE{sge(from, 0, 8)}})
			x.want(t, "send 1: transport retry counter exceeded")
			for y.qp.State() != rdma.StateErr {
				runtime.Gosched()
			}
			if sent := y.dev.Port().Counters().ErrorNAKsSent; sent != 0 {
				t.Errorf("copied %v, %v: %d NAKs sent", copied, op, sent)
			}
		}
	}
}
