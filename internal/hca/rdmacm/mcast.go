package rdmacm

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/net/mad"
)

// sendOnly is the largest join flag: a membership for sending.
const sendOnly = 1

// group is a membership of an id in a multicast group.
type group struct {
	id       *id
	num      uint32
	uid      uint64
	addr     netip.Addr
	reported uint32
}

func (i *id) joinIPMcast(in []byte) ([]byte, syscall.Errno) {
	return i.join(ne.Uint64(in[8:]), in[16:])
}

func (i *id) joinMcast(in []byte) ([]byte, syscall.Errno) {
	if _, size := parseSockaddr(in[24:]); ne.Uint16(in[20:]) != size || ne.Uint16(in[22:]) > sendOnly {
		return nil, syscall.EINVAL
	}
	return i.join(ne.Uint64(in[8:]), in[24:])
}

// join creates a membership. RoCE has no subnet manager: the address alone determines the
// group, so the event is sent at once. The host becomes a member when the library
// attaches a QP to the group.
func (i *id) join(uid uint64, sockaddr []byte) ([]byte, syscall.Errno) {
	a, _ := parseSockaddr(sockaddr)
	if i.dev == nil || i.qpType != qpTypeUD || !a.Addr().IsMulticast() {
		return nil, syscall.EINVAL
	}
	for _, g := range i.groups {
		if g.addr == a.Addr() {
			return nil, syscall.EADDRINUSE
		}
	}
	n, errno := i.m.newNumber()
	if errno != 0 {
		return nil, errno
	}
	g := &group{id: i, num: n, uid: uid, addr: a.Addr()}
	i.groups[n], i.m.groups[n] = g, g
	qkey := i.qkey
	if i.space == mad.PortSpaceUDP {
		qkey = defaultUDPQKey
	}
	peer := i.ah(i.tos)
	peer.dgid = a.Addr()
	param := udParam{qpn: groupQPN, qkey: qkey, ah: peer}
	i.m.happened(func() func() {
		if i.destroyed || i.groups[n] != g {
			return nil
		}
		return i.file.post(&event{id: i, group: g, kind: eventMulticastJoin, param: param.put})
	})
	return answer32(n), 0
}

func (f *File) leaveMcast(_ Process, in []byte) ([]byte, syscall.Errno) {
	g := f.m.groups[ne.Uint32(in[8:])]
	if g == nil || g.id.file != f {
		return nil, syscall.ENOENT
	}
	f.drop(func(e *event) bool { return e.group == g })
	delete(g.id.groups, g.num)
	delete(f.m.groups, g.num)
	return answer32(g.reported), 0
}
