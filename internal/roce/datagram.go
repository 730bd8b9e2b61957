package roce

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

// An AH is an address handle: the destination of datagrams. It is immutable and need not
// be closed.
type AH struct {
	path
	flow wire.Flow
}

// NewAH returns an address handle for a device or a multicast group. Datagrams
// leave from entry sgid of the port's GID table. If to has port 0, port 4791 is
// used. The upper six bits of tclass become the packets' DSCP. NewAH returns
// EINVAL if sgid is not an index of the GID table, or if packets cannot go from
// that entry's address to the destination.
func (p *Port) NewAH(sgid int, to netip.AddrPort, tclass uint8) (*AH, error) {
	const op = "roce address handle"
	ip := to.Addr().Unmap()
	if !ip.IsValid() || ip.IsUnspecified() {
		return nil, failure.New(op, syscall.EINVAL, "address %v: must be one host's or a group's", to.Addr())
	}
	l, err := p.link(op, sgid, ip)
	if err != nil {
		return nil, err
	}
	to = netip.AddrPortFrom(l.peer(ip), cmp.Or(to.Port(), UDPPort))
	return newAH(path{from: l, to: to, tos: dscp(tclass)}), nil
}

func newAH(w path) *AH { return &AH{path: w, flow: wire.NewFlow(w.source(), w.to)} }

// dscp returns the bits of a traffic class that are not ECN's.
func dscp(tclass uint8) byte { return tclass &^ 3 }

// Via returns a handle for the same destination over another route. Without
// packetconn.Caps.Routes only the hop limit of a route counts.
func (a *AH) Via(r packetconn.Route) *AH {
	w := a.path
	w.route = r
	return newAH(w)
}

// Addr returns the destination's address and UDP port.
func (a *AH) Addr() netip.AddrPort { return a.to }

// ownQKey is the bit of Work.QKey that selects the QP's own Q_Key (section 10.2.5).
const ownQKey = 1 << 31

// qkey returns the Q_Key of the QP.
func (q *endpoint) qkey() uint32 {
	if q.typ == ibv.GSI {
		return gsiQKey
	}
	return q.recv.QKey
}

// putDatagram adds the packet of w to b. It returns false if the trains are full or if w
// failed.
func (q *QP) putDatagram(b *builder, w *Work, near *link) bool {
	op := dataOps[w.Op][only].With(wire.ServiceUD)
	head, n := op.HeaderLen(), int(w.Length)
	size := head + n + pads(n) + wire.ICRCLen
	b.aim(w.DestQPN)
	way := w.AH.path
	way.near = near
	p, id := b.add(&way, size)
	if p == nil {
		return false
	}
	if n > 0 {
		if err := w.Src.ReadAt(p[head:head+n], 0); err != nil {
			b.undo(size)
			q.req.failSource(w, err)
			return false
		}
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: op, MigReq: true, Solicited: w.Solicited, Pad: uint8(pads(n)), PKey: wire.DefaultPKey,
		DestQP: w.DestQPN, PSN: q.req.next,
	})
	deth := wire.DETH{QKey: w.QKey, SrcQP: q.num}
	if deth.QKey&ownQKey != 0 {
		deth.QKey = q.qkey()
	}
	ext := p[wire.BTHLen:]
	wire.PutDETH(ext, &deth)
	if w.Op == ibv.WRSendImm {
		binary.BigEndian.PutUint32(ext[wire.DETHLen:], w.Imm)
	}
	clear(p[head+n : size-wire.ICRCLen])
	if near == nil {
		w.AH.flow.Front(size).WithID(id).PutICRC(p)
	}
	return true
}

// datagram handles a received datagram whose CRC is right. grh describes its network
// header. It reports whether a receive request was used up.
//
// A datagram that is longer than the receive request is dropped, and the next one uses the
// request: anybody who knows the Q_Key can send one, and must not stop the QP with it.
func (q *QP) datagram(k *packet, grh *wire.GRH, from *origin) bool {
	n := &q.port.n
	if k.deth.QKey != q.qkey() {
		n.BadQKey.Add(1)
		return false
	}
	sink, nak := q.h.BeginRecv(0)
	if nak != NAKNone {
		q.count(func(n *counters) { n.NoReceive.Add(1) })
		return false
	}
	var b [wire.GRHLen]byte
	wire.PutGRH(b[:], grh)
	err := sink.Write(b[:])
	if err == nil && len(k.payload) > 0 {
		err = sink.Write(k.payload)
	}
	if remoteNAK(err) == NAKInvalidRequest && err != nil {
		n.TooLong.Add(1)
		q.h.ReturnRecv()
		return false
	}
	if err != nil {
		q.failRest(Failure{Status: rdma.StatusLocProtErr, Err: err})
		return false
	}
	ev := RecvEvent{
		Op: ibv.WRSend, Length: uint32(wire.GRHLen + len(k.payload)), Solicited: k.Solicited,
		GRH: true, SrcQPN: k.deth.SrcQP, Src: from.addr, Route: from.route, SGIDIndex: -1, PSN: k.PSN,
	}
	if from.to != nil {
		ev.SGIDIndex = from.to.index
	}
	if k.layout&wire.HasImmDt != 0 {
		ev.HasImm, ev.Imm = true, k.imm()
	}
	if nak := q.h.Received(ev); nak != NAKNone {
		q.failRest(Failure{Status: rdma.StatusLocProtErr, Err: nak.Err()})
	}
	return true
}
