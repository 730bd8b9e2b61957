package adapter

import (
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
)

// gathering is the data of small requests that wait in the send queue, read in one batch:
// one system call for each would cost more than all other work. The program has handed
// the buffers of requests over when it posted them, so that they may be read from then
// on, except for those behind a fence, which wait for data that is still to come.
type gathering struct {
	first uint16 // index of the request of sges[0]; one block each
	sges  []rdma.SGE
	vecs  []keydoor.Vec
	data  []byte
}

const (
	smallData  = 256 // bytes of a request's data that are gathered
	mostGather = 32  // requests of a batch
)

func (g *gathering) forget() { g.sges = g.sges[:0] }

// take returns the data of the request at an index whose list is sge, or nil. In SQD the program
// may have replaced the request since its data was read.
func (g *gathering) take(index uint16, sge rdma.SGE) []byte {
	i := int(index - g.first)
	if i >= len(g.sges) || g.sges[i] != sge {
		return nil
	}
	return g.data[i*smallData:][:sge.Length]
}

// gather sets the data of a small request. It reads the data of the small requests after it in the same call.
func (q *QP) gather(slot *sendSlot) {
	req, s := &slot.req, &q.sq
	g := &s.gathering
	if q.attr.Type != rdma.RC || len(req.SGEs) != 1 || req.HasInline || req.SGEs[0].Length > smallData || req.SGEs[0].Length == 0 {
		return
	}
	data := g.take(slot.index, req.SGEs[0])
	if data == nil {
		if q.gatherFrom(slot.index); len(g.sges) < 2 {
			g.forget()
			return
		}
		if data = g.take(slot.index, req.SGEs[0]); data == nil {
			return
		}
	}
	slot.data = append(slot.data[:0], data...)
	req.Gathered = slot.data
}

// gatherFrom reads the data of the small requests from index on, as far as the copy of the
// queue reaches.
func (q *QP) gatherFrom(index uint16) {
	s := &q.sq
	g := &s.gathering
	g.forget()
	g.first = index
	if g.data == nil {
		g.data, g.vecs = make([]byte, mostGather*smallData), make([]keydoor.Vec, mostGather)
	}
	off := int(index-s.aheadAt) * prm.BlockSize
	for len(g.sges) < mostGather && off+prm.BlockSize <= len(s.ahead) {
		sge, ok := smallRequest(s.ahead[off:][:prm.BlockSize], q.number, len(g.sges) == 0)
		if !ok {
			break
		}
		i := len(g.sges)
		g.sges = append(g.sges, sge)
		g.vecs[i].Buf = g.data[i*smallData:][:sge.Length]
		off += prm.BlockSize
	}
	if len(g.sges) > 1 && !q.eng.Gather(g.sges, g.vecs) {
		g.forget()
	}
}

// smallRequest returns the data of a request of one block that sends little from one
// range. A fence is allowed for the first request of a batch: its wait is over.
func smallRequest(b []byte, qpn uint32, first bool) (sge rdma.SGE, ok bool) {
	c, err := prm.ParseControl(b)
	if err != nil || c.QPN != qpn || c.Fenced() && !first {
		return sge, false
	}
	at := prm.ControlSize
	switch c.Opcode {
	case prm.OpSend, prm.OpSendImm, prm.OpSendInv:
	case prm.OpWrite, prm.OpWriteImm:
		at += 16 // the remote address
	default:
		return sge, false
	}
	if c.Size != at+prm.DataSegSize {
		return sge, false
	}
	d := prm.ParseData(b[at:])
	if d.Length == 0 || d.Length > smallData { // inline data is longer: its highest bit is set
		return sge, false
	}
	return rdma.SGE{Addr: d.Addr, Length: d.Length, LKey: d.LKey}, true
}
