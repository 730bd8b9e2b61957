//go:build linux

package uverbs

import "github.com/softmkey/softmkey/internal/hca/adapter"

// The ABI has two address structures: the same fields, in different orders.

// ahAttr reads struct ib_uverbs_ah_attr.
func ahAttr(in fields, at int) adapter.AHAttr { return address(in, at, at+20, at+24, at+26) }

// qpDest reads struct ib_uverbs_qp_dest.
func qpDest(in fields, at int) adapter.AHAttr { return address(in, at, at+24, at+20, at+27) }

// address reads an address: the GID with the flow label, the rest of the route, the LID,
// and the link.
func address(in fields, gid, route, lid, link int) adapter.AHAttr {
	a := adapter.AHAttr{
		FlowLabel: in.u32(gid + 16),
		SGIDIndex: in.u8(route), HopLimit: in.u8(route + 1), TrafficClass: in.u8(route + 2),
		DLID: in.u16(lid),
		SL:   in.u8(link), SrcPathBits: in.u8(link + 1), StaticRate: in.u8(link + 2), IsGlobal: in.u8(link+3) != 0, Port: in.u8(link + 4),
	}
	for i := range a.DGID {
		a.DGID[i] = in.u8(gid + i)
	}
	return a
}

// putDest writes struct ib_uverbs_qp_dest.
func putDest(r fields, at int, a *adapter.AHAttr) {
	copy(r[at:], a.DGID[:])
	r.put32(at+16, a.FlowLabel)
	r.put16(at+20, a.DLID)
	r.put8(at+24, a.SGIDIndex)
	r.put8(at+25, a.HopLimit)
	r.put8(at+26, a.TrafficClass)
	r.put8(at+27, a.SL)
	r.put8(at+28, a.SrcPathBits)
	r.put8(at+29, a.StaticRate)
	r.put8(at+30, b2u(a.IsGlobal))
	r.put8(at+31, a.Port)
}
