package adapter_test

import (
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// TestVendorErrors checks the vendor's code of completions with errors.
func TestVendorErrors(t *testing.T) {
	both(t, func(t *testing.T, o options) {
		type ends struct {
			p        *pair
			mr       *adapter.MR // of b, with all rights
			at       uint64
			local    *adapter.MR // of a, with all rights
			la       uint64
			readOnly *adapter.MR // of b
			ro       uint64
			localRO  *adapter.MR // of a
			lro      uint64
			free     *key // of a
		}
		for name, c := range map[string]struct {
			post func(e *ends)
			recv bool // the completion is that of b's receive request
			want uint8
		}{
			"local range":    {post: func(e *ends) { e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).data(e.la+4090, 8, e.local.LKey())) }, want: 0x53},
			"local key":      {post: func(e *ends) { e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).data(e.la, 8, 0x77700)) }, want: 0x52},
			"local free key": {post: func(e *ends) { e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).data(0, 8, e.free.number)) }, want: 0x52},
			"local right": {post: func(e *ends) {
				e.p.qa.post(newWQE(prm.OpRead, 0, 0, 0).raddr(e.at, e.mr.RKey()).data(e.lro, 8, e.localRO.LKey()))
			}, want: 0x33},
			"local operation": {post: func(e *ends) {
				e.p.qa.post(newWQE(prm.OpRead, 0, 0, 0).raddr(e.at, e.mr.RKey()).inline([]byte("inline!!")))
			}, want: 0x68},
			"binding": {post: func(e *ends) { e.p.qa.post(newWQE(prm.OpUMR, 0, 0x77700, 0).bytes(make([]byte, 112)...)) }, want: 0x78},
			"flushed": {post: func(e *ends) {
				e.p.qa.modify(adapter.QPModify{State: rdma.StateErr}, ibv.AttrState)
				e.p.qa.post(newWQE(prm.OpNop, 0, 0, prm.FlagCQUpdate))
			}, want: 0xf5},
			"flushed, receive": {post: func(e *ends) {
				e.p.qb.postRecv(prm.Data{Length: 8, LKey: e.mr.LKey(), Addr: e.at})
				e.p.qb.modify(adapter.QPModify{State: rdma.StateErr}, ibv.AttrState)
			}, recv: true, want: 0xf9},
			"receive, right": {post: func(e *ends) {
				e.p.qb.postRecv(prm.Data{Length: 8, LKey: e.readOnly.LKey(), Addr: e.ro})
				e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte("message!")))
			}, recv: true, want: 0x33},
			"remote operation": {post: func(e *ends) {
				e.p.qb.postRecv(prm.Data{Length: 8, LKey: 0x77700, Addr: e.at})
				e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte("message!")))
			}, want: 0x89},
			"remote access": {post: func(e *ends) {
				e.p.qa.post(newWQE(prm.OpWrite, 0, 0, 0).raddr(e.ro, e.readOnly.RKey()).inline([]byte("x")))
			}, want: 0x88},
			"remote invalid": {post: func(e *ends) {
				e.p.qb.postRecv(prm.Data{Length: 4, LKey: e.mr.LKey(), Addr: e.at})
				e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte("message!")))
			}, want: 0x8a},
			"retries": {post: func(e *ends) {
				e.p.qb.modify(adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
				e.p.reconnect(adapter.QPModify{Timeout: 1, RetryCnt: 1})
				e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte("x")))
			}, want: 0x81},
			"RNR": {post: func(e *ends) {
				e.p.reconnect(adapter.QPModify{Timeout: 14, RetryCnt: 7})
				e.p.qa.post(newWQE(prm.OpSend, 0, 0, 0).inline([]byte("x")))
			}, want: 0x87},
		} {
			t.Run(name, func(t *testing.T) {
				e := &ends{p: newPair(t, o)}
				e.mr, e.at = e.p.b.mr(4096, 0xf)
				e.local, e.la = e.p.a.mr(4096, 0xf)
				e.readOnly, e.ro = e.p.b.mr(4096, 0)
				e.localRO, e.lro = e.p.a.mr(4096, 0)
				e.free = e.p.a.newKey(keyKind{entries: 4})
				c.post(e)
				e.p.a.ctx.Poll()
				cq := e.p.qa.send
				if c.recv {
					cq = e.p.qb.recv
				}
				if got := cq.waitCQE(); got.Vendor != c.want {
					t.Errorf("vendor's error %#x, want %#x; %+v", got.Vendor, c.want, got)
				}
			})
		}
	})
}

// reconnect takes the QP of a to RTS again with other values for RTS.
func (p *pair) reconnect(m adapter.QPModify) {
	q := p.qa
	q.modify(adapter.QPModify{State: rdma.StateReset}, ibv.AttrState)
	q.head, q.rhead = 0, 0
	q.p.mem.put(q.db, make([]byte, 8))
	q.toRTR(p.qb, 3)
	q.toRTS(m)
}
