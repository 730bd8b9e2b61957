package rdmacm

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/fair"
	"github.com/softmkey/softmkey/internal/net/mad"
)

// state is the progress of an id.
type state uint8

const (
	stateIdle          state = iota
	stateBound               // has an address
	stateAddrResolved        // has a device
	stateRouteResolved       //
	stateConnect             // has or requested a connection
	stateListen              //
)

// family is the address families that an id which is bound to an unspecified address uses.
type family uint8

const (
	familyDefault family = iota // only IPv4 for 0.0.0.0, both for [::]
	familyOwn                   // only that of the address: RDMA_OPTION_ID_AFONLY is 1
	familyBoth                  // RDMA_OPTION_ID_AFONLY is 0
)

// QP types of enum ibv_qp_type. The two of XRC are the sending and the receiving one.
const (
	qpTypeRC      = 2
	qpTypeUC      = 3
	qpTypeUD      = 4
	qpTypeXRCSend = 9
	qpTypeXRCRecv = 10
)

// id is an rdma_cm id of a program.
type id struct {
	m      *Manager
	file   *File
	num    uint32
	uid    uint64 // the program's name for it
	space  mad.PortSpace
	qpType uint8

	state     state
	passive   bool // created by a request
	fetched   bool // the program has fetched it
	displaced bool // newer requests displaced it before the program accepted it
	destroyed bool
	reported  uint32 // events that the program has fetched

	src, dst netip.AddrPort
	dev      *Device
	gidIndex int
	way      way   // to the address that the command in execution names
	why      error // of the refusal of the command in execution; nil: the errno says it
	room     int   // for the answer of the command in execution
	ports    []*cmcore.Port

	listeners  []*cmcore.Listener
	backlog    int
	requests   fair.Queue[*event] // of peers, that the program cannot get yet
	unanswered int                // requests that the program has got
	listener   *id                // of a request that counts as unanswered
	conn       *cmcore.Conn
	qpn        uint32 // of this side of conn
	query      *cmcore.Query

	reuse      bool
	family     family
	tos        uint8
	ackTimeout uint8
	qkey       uint32
	groups     map[uint32]*group
}

func (f *File) newID() (*id, syscall.Errno) {
	num, errno := f.m.newNumber()
	if errno != 0 {
		return nil, errno
	}
	i := &id{m: f.m, file: f, num: num, gidIndex: -1, groups: make(map[uint32]*group)}
	f.m.ids[num], f.ids[num] = i, i
	return i, 0
}

func answer32(v uint32) []byte { return ne.AppendUint32(nil, v) }

func (f *File) createID(_ Process, in []byte) ([]byte, syscall.Errno) {
	space, qpType := mad.PortSpace(ne.Uint16(in[16:])), in[18]
	switch space {
	case mad.PortSpaceTCP:
		qpType = qpTypeRC
	case mad.PortSpaceUDP, mad.PortSpaceIPoIB:
		qpType = qpTypeUD
	case mad.PortSpaceIB:
		switch qpType {
		case qpTypeRC, qpTypeUC, qpTypeUD, qpTypeXRCSend, qpTypeXRCRecv:
		default:
			return nil, syscall.EINVAL
		}
	default:
		return nil, syscall.EINVAL
	}
	i, errno := f.newID()
	if errno != 0 {
		return nil, errno
	}
	i.uid, i.space, i.qpType = ne.Uint64(in), space, qpType
	i.qkey = defaultUDPQKey
	if space == mad.PortSpaceIPoIB {
		i.qkey = defaultIPoIBKey
	}
	return answer32(i.num), 0
}

func (i *id) destroyID(in []byte) ([]byte, syscall.Errno) {
	i.destroy()
	return answer32(i.reported), 0
}

// destroy releases everything of the id. The lock is held.
func (i *id) destroy() {
	if i.destroyed {
		return
	}
	i.destroyed = true
	for _, e := range i.file.drop(func(e *event) bool { return e.id == i }) {
		if e.request != nil {
			e.request.destroy()
		}
	}
	for _, g := range i.groups {
		delete(i.m.groups, g.num)
	}
	for _, e := range i.requests.Clear() {
		e.request.destroy()
	}
	i.answer()
	delete(i.m.ids, i.num)
	delete(i.file.ids, i.num)
	for _, l := range i.listeners {
		l.Close()
	}
	if i.conn != nil {
		i.conn.Close()
	}
	if i.query != nil {
		i.query.Close()
	}
	i.unbind()
}

func (i *id) unbind() {
	for _, p := range i.ports {
		p.Close()
	}
	i.ports = nil
}

// bind gives the id a local address, and a device if the address is not
// unspecified. The port is reserved on every device that the address is on.
func (i *id) bind(a netip.AddrPort) syscall.Errno {
	if i.state != stateIdle {
		return syscall.EINVAL
	}
	devices := i.m.devices
	local := i.wildcard(a.Addr())
	if a.Addr().IsValid() && !a.Addr().IsUnspecified() {
		local = a.Addr().Unmap()
		if d, _ := i.m.device(local); d == nil && local.IsLoopback() && a.Port() == 0 {
			// The address that the system chooses for a client on this host,
			// usually 127.0.0.1, is replaced by the device's loopback
			// address.
			if local = i.m.route(local, i.way); local.IsValid() {
				a = netip.AddrPortFrom(local, 0)
			}
		}
		dev, index := i.m.device(local)
		if dev == nil {
			return syscall.EADDRNOTAVAIL
		}
		i.dev, i.gidIndex = dev, index
		devices = []*Device{dev}
	}
	port := a.Port()
	for _, d := range devices {
		p, err := d.Service.Bind(i.space, local, port, i.reuse)
		if err != nil {
			i.unbind()
			i.dev, i.gidIndex = nil, -1
			return errnoOf(err)
		}
		i.ports = append(i.ports, p)
		port = p.Num()
	}
	i.src = netip.AddrPortFrom(a.Addr(), port)
	i.state = stateBound
	return 0
}

// wildcard returns the local address by which the connection manager knows an id that is bound
// to the unspecified address a. a itself stands for the addresses of its family, the invalid
// address for those of both families. As in the kernel, 0.0.0.0 is for IPv4 only by default.
func (i *id) wildcard(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if i.family == familyOwn || i.family == familyDefault && a.Is4() {
		return a
	}
	return netip.Addr{}
}

func (i *id) bindAddr([]byte) ([]byte, syscall.Errno) { return nil, i.bind(i.way.from) }

func (i *id) resolveAddr([]byte) ([]byte, syscall.Errno) {
	src, dst := i.way.from, i.way.to
	if i.state != stateIdle && i.state != stateBound {
		return nil, syscall.EINVAL
	}
	if i.state == stateIdle {
		if !src.Addr().IsValid() {
			src = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
			if dst.Addr().Is4() {
				src = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
			}
		}
		if errno := i.bind(src); errno != 0 {
			return nil, errno
		}
	}
	if i.dev == nil {
		// An unspecified destination means this host, as in the kernel.
		local := i.m.route(dst.Addr().Unmap(), i.way)
		if dst.Addr().IsUnspecified() && len(i.m.devices) > 0 {
			local = i.m.firstAddr(func(a netip.Addr) bool { return a.Is4() == dst.Addr().Is4() })
		}
		switch {
		case !local.IsValid() && (i.way.here || errors.Is(i.way.err, syscall.ENODEV)): // the host reaches it by an interface without a device
			i.soonPost(&event{id: i, kind: eventAddrError, status: -int32(syscall.ENODEV), why: i.way.err})
			return nil, 0
		case !local.IsValid():
			return nil, syscall.ENETUNREACH
		}
		i.dev, i.gidIndex = i.m.device(local)
		i.src = netip.AddrPortFrom(local, i.src.Port())
	}
	if dst.Addr().IsUnspecified() {
		dst = netip.AddrPortFrom(i.src.Addr(), dst.Port())
	}
	i.dst = dst
	i.state = stateAddrResolved
	i.soon(eventAddrResolved, nil)
	return nil, 0
}

func (i *id) resolveRoute(in []byte) ([]byte, syscall.Errno) {
	if i.state != stateAddrResolved {
		return nil, syscall.EINVAL
	}
	i.state = stateRouteResolved
	i.soon(eventRouteResolved, nil)
	return nil, 0
}

func (i *id) queryRoute(in []byte) ([]byte, syscall.Errno) {
	b := make([]byte, routeLen)
	putSockaddr(b[136:], i.src)
	putSockaddr(b[164:], i.dst)
	ne.PutUint32(b[200:], invalidIBIndex)
	if i.dev == nil {
		return b, 0
	}
	binary.BigEndian.PutUint64(b, i.dev.NodeGUID)
	b[196] = i.dev.Port
	if i.dst.Addr().IsValid() {
		putPath(b[8:8+pathLen], i.src.Addr(), i.dst.Addr(), i.dev.mtu(), i.tos)
	}
	if i.routed() {
		ne.PutUint32(b[192:], 1)
	}
	return b, 0
}

// routed reports whether the id has a path.
func (i *id) routed() bool { return i.state >= stateRouteResolved && i.dst.Addr().IsValid() }

// queryAny executes QUERY. Its answers have the fields of QUERY_ROUTE's in other places.
func (i *id) queryAny(in []byte) ([]byte, syscall.Errno) {
	const addrs, path, gids = 0, 1, 2
	option := ne.Uint32(in[12:])
	switch {
	case option > gids:
		return nil, syscall.ENOSYS
	case option != path && i.room < oldAddrsLen || i.room < pathsLen:
		return nil, syscall.ENOSPC
	case option == path:
		b := make([]byte, pathsLen, pathsLen+pathDataLen)
		if i.dev == nil || !i.routed() {
			return b, 0
		}
		ne.PutUint32(b, 1)
		if i.room >= cap(b) {
			b = b[:cap(b)]
			putPathData(b[pathsLen:], i.src.Addr(), i.dst.Addr(), i.dev.mtu(), i.tos)
		}
		return b, 0
	}
	b := make([]byte, addrsLen)
	ne.PutUint32(b[oldAddrsLen:], invalidIBIndex)
	if i.dev != nil {
		binary.BigEndian.PutUint64(b, i.dev.NodeGUID)
		b[8], b[10], b[11] = i.dev.Port, 0xff, 0xff // P_Key
	}
	for n, a := range []netip.AddrPort{i.src, i.dst} {
		size, to := b[12+2*n:], b[16+storageLen*n:]
		switch {
		case option == gids:
			ne.PutUint16(size, sockaddrIBLen)
			ne.PutUint16(to, familyIB)
			copy(to[2:], b[10:12])
			if a.Addr().IsValid() {
				g := a.Addr().As16()
				copy(to[8:], g[:])
			}
			binary.BigEndian.PutUint64(to[24:], mad.ServiceID(i.space, a.Port()))
		case a.Addr().IsValid():
			putSockaddr(to, a)
			_, n := parseSockaddr(to)
			ne.PutUint16(size, n)
		}
	}
	return b, 0
}

func (i *id) initQPAttr(in []byte) ([]byte, syscall.Errno) {
	to := ne.Uint32(in[12:])
	if to > 3 || i.dev == nil {
		return nil, syscall.EINVAL
	}
	b := make([]byte, qpAttrLen)
	tail := b[qpAttrTail:] // pkey_index 0, max_rd_atomic 6, max_dest 7, min_rnr 8, port 9, timeout 10, retry 11, rnr 12
	ne.PutUint32(b[4:], to)
	mask := uint32(maskState)
	switch {
	case to == 1 || i.conn == nil:
		mask |= maskPKeyIndex | maskPort
		tail[9] = i.dev.Port
		if i.qpType == qpTypeUD {
			mask |= maskQKey
			ne.PutUint32(b[20:], i.qkey)
			break
		}
		mask |= maskAccess
		if i.conn != nil {
			access := uint32(accessRemoteWR)
			if i.conn.Attr().MaxDestRdAtomic > 0 {
				access |= accessRemoteRD | accessAtomic
			}
			ne.PutUint32(b[36:], access)
		}
	case to == 2:
		a := i.conn.Attr()
		mask |= maskAV | maskPathMTU | maskDestQPN | maskRQPSN
		i.ah(a.TrafficClass).put(b[qpAttrAH:])
		ne.PutUint32(b[12:], uint32(a.MTU))
		ne.PutUint32(b[24:], a.RQPSN)
		ne.PutUint32(b[32:], a.DestQPN)
		if i.qpType == qpTypeRC || i.qpType == qpTypeXRCRecv {
			mask |= maskMaxDestRd | maskMinRNR
			tail[7], tail[8] = a.MaxDestRdAtomic, 0
		}
	case to == 3:
		a := i.conn.Attr()
		mask |= maskSQPSN
		ne.PutUint32(b[28:], a.SQPSN)
		if i.qpType == qpTypeRC || i.qpType == qpTypeXRCSend {
			mask |= maskRetry | maskRNRRetry | maskMaxRd
			tail[6], tail[11], tail[12] = a.MaxRdAtomic, a.RetryCount, a.RNRRetry
		}
		if i.qpType != qpTypeUC {
			mask |= maskTimeout
			tail[10] = a.Timeout
			if i.ackTimeout != 0 {
				tail[10] = i.ackTimeout
			}
		}
	}
	ne.PutUint32(b, mask)
	return b, 0
}

// transport returns the service type of the id's QPs in a REQ.
func (i *id) transport() mad.Transport {
	switch i.qpType {
	case qpTypeUC:
		return mad.UC
	case qpTypeXRCSend, qpTypeXRCRecv:
		return mad.XRC
	}
	return mad.RC
}

// ah returns the address handle of the peer.
func (i *id) ah(trafficClass uint8) ah {
	return ah{dgid: i.dst.Addr(), sgidIndex: uint8(max(i.gidIndex, 0)), trafficClass: trafficClass, port: i.dev.Port}
}

// SET_OPTION names the address and the length of a value, which has at most mostOption bytes.
const (
	optionLen  = 24
	mostOption = 4
)

// withOption returns a SET_OPTION with its value behind it, or without one if the program does not
// have the memory. It reads the memory before the lock is taken: the memory may wait for the program.
func withOption(p Process, in []byte) []byte {
	v := make([]byte, min(ne.Uint32(in[20:]), mostOption))
	in = in[:optionLen:optionLen]
	if p.Read(ne.Uint64(in), v) != nil {
		return in
	}
	return append(in, v...)
}

func (i *id) setOption(in []byte) ([]byte, syscall.Errno) {
	level, name, n := ne.Uint32(in[12:]), ne.Uint32(in[16:]), ne.Uint32(in[20:])
	const levelID, tos, reuseAddr, afOnly, ackTimeout = 0, 0, 1, 2, 3
	if level != levelID || name > ackTimeout {
		return nil, syscall.ENOSYS
	}
	size := uint32(4)
	if name == tos || name == ackTimeout {
		size = 1
	}
	if n != size {
		return nil, syscall.EINVAL
	}
	v := in[optionLen:]
	if len(v) == 0 {
		return nil, syscall.EFAULT
	}
	on := size == 4 && ne.Uint32(append(v, 0, 0, 0)) != 0
	switch {
	case name == tos:
		i.tos = v[0]
	case name == ackTimeout && v[0] > 31, size == 4 && i.state != stateIdle:
		return nil, syscall.EINVAL
	case name == ackTimeout:
		i.ackTimeout = v[0]
	case name == reuseAddr:
		i.reuse = on
	case on:
		i.family = familyOwn
	default:
		i.family = familyBoth
	}
	return nil, 0
}

// migrateID moves an id from another file of the program to this one, with its pending
// events.
func (f *File) migrateID(p Process, in []byte) ([]byte, syscall.Errno) {
	from := p.File(int(int32(ne.Uint32(in[12:]))))
	if from == nil || from.m != f.m {
		return nil, syscall.EBADF
	}
	i := from.ids[ne.Uint32(in[8:])]
	if i == nil {
		return nil, syscall.ENOENT
	}
	if from != f {
		events := from.drop(func(e *event) bool { return e.id == i })
		delete(from.ids, i.num)
		f.ids[i.num] = i
		i.file = f
		for _, e := range i.requests.Clear() {
			delete(from.ids, e.request.num)
			f.ids[e.request.num] = e.request
			e.request.file = f
			i.requests.Push(e.request.dst.Addr(), e)
		}
		for _, e := range events {
			if e.request != nil {
				// The new ids move with their requests.
				delete(from.ids, e.request.num)
				f.ids[e.request.num] = e.request
				e.request.file = f
			}
			if after := f.post(e); after != nil {
				f.m.happened(func() func() { return after })
			}
		}
	}
	return answer32(i.reported), 0
}

func (i *id) notify(in []byte) ([]byte, syscall.Errno) {
	const commEst = 4 // IBV_EVENT_COMM_EST
	if i.conn == nil || ne.Uint32(in[4:]) != commEst {
		return nil, syscall.EINVAL
	}
	i.conn.Arrived()
	return nil, 0
}
