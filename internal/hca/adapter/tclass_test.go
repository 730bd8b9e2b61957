package adapter_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// headers counts the packets of a device by the fields of their IP headers that programs choose.
type headers struct {
	mu   sync.Mutex
	seen map[string]int
}

// headerConn is a Conn that counts its packets.
type headerConn struct {
	packetconn.Conn
	h *headers
}

func (c headerConn) Unwrap() packetconn.Conn { return c.Conn }

func (c headerConn) Send(trains []packetconn.Train) (int, error) {
	c.h.mu.Lock()
	for i := range trains {
		c.h.seen[fmt.Sprintf("class %#x, hops %d", trains[i].TOS, trains[i].Route.HopLimit)]++
	}
	c.h.mu.Unlock()
	return c.Conn.Send(trains)
}

// want checks that every packet since the last call had these fields.
func (h *headers) want(t *testing.T, what, fields string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.seen) != 1 || h.seen[fields] == 0 {
		t.Errorf("%s: packets %v, want %s only", what, h.seen, fields)
	}
	h.seen = map[string]int{}
}

// TestTrafficClass checks the traffic class and hop limit of the packets of each kind of QP, of
// requests and of answers. Packets are ECN-capable. The hop limit of a connected QP is that
// of the system, since the kernel replaces the program's by that of its route, unless the QP was
// connected by a command.
func TestTrafficClass(t *testing.T) {
	h := &headers{seen: map[string]int{}}
	p := newPair(t, options{wrap: func(c packetconn.Conn) packetconn.Conn { return headerConn{c, h} }})
	mr, at := p.b.mr(1<<16, 0xf)
	const tclass, hops = 0x69, 17
	const connected, addressed = "class 0x6a, hops 0", "class 0x6a, hops 17"
	for _, typ := range []rdma.QPType{rdma.RC, rdma.UC} {
		kind := func(a *adapter.QPAttr) { a.Type = typ }
		a, b := p.a.qp(p.a.cq(64, nil), p.a.cq(64, nil), kind), p.b.qp(p.b.cq(64, nil), p.b.cq(64, nil), kind)
		for _, x := range [][2]*qp{{a, b}, {b, a}} {
			q := x[0]
			q.modify(adapter.QPModify{State: rdma.StateInit, Port: 1, AccessFlags: 2}, ibv.AttrState|ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
			m := adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, DestQPN: x[1].Number(), Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 1,
				AV: adapter.AHAttr{DGID: x[1].p.dev.GIDs()[3].GID, SGIDIndex: 3, IsGlobal: true, TrafficClass: tclass, HopLimit: hops}}
			rtr, rts := ibv.AttrState|ibv.AttrAV|ibv.AttrPathMTU|ibv.AttrDestQPN|ibv.AttrRQPSN, ibv.AttrState|ibv.AttrSQPSN
			if typ == rdma.RC {
				rtr |= ibv.AttrMaxDestRdAtomic | ibv.AttrMinRNRTimer
				rts |= ibv.AttrTimeout | ibv.AttrRetryCnt | ibv.AttrRNRRetry | ibv.AttrMaxRdAtomic
			}
			q.modify(m, rtr)
			m.State = rdma.StateRTS
			q.modify(m, rts)
		}
		a.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, mr.RKey()).inline([]byte("x")))
		a.done()
		h.want(t, typ.String(), connected)
	}
	ud, to := p.a.datagrams(p.a.cq(64, nil), p.a.cq(64, nil)), p.b.datagrams(p.b.cq(64, nil), p.b.cq(64, nil))
	w := newWQE(prm.OpSend, 0, 0, prm.FlagCQUpdate).to(to, 3)
	w.b[16+26], w.b[16+27] = tclass, hops
	ud.post(w.inline([]byte("x")))
	ud.send.waitCQE()
	h.want(t, "UD", addressed)

	s, c := p.b.srqWith(8, func(*adapter.SRQAttr) {}), p.b.cq(64, nil)
	dct := p.b.dct(s, c)
	dct.modify(adapter.QPModify{State: rdma.StateRTR, PathMTU: 3, MinRNRTimer: 1, AV: adapter.AHAttr{SGIDIndex: 3, IsGlobal: true, TrafficClass: tclass, HopLimit: hops}},
		ibv.AttrState|ibv.AttrPathMTU|ibv.AttrAV|ibv.AttrMinRNRTimer)
	dci := p.a.dci()
	w = newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).dct(p.b.dev, dct.Number(), dcKey)
	w.b[16+26], w.b[16+27] = tclass, hops
	dci.post(w.raddr(at, mr.RKey()).inline([]byte("x")))
	dci.done()
	h.want(t, "DC", addressed)
}
