package rdmacm

import (
	"encoding/binary"
	"net/netip"

	"github.com/softmkey/softmkey/internal/device/cmcore"
)

var ne = binary.NativeEndian

// The commands, RDMA_USER_CM_CMD_*.
const (
	cmdCreateID     = 0
	cmdDestroyID    = 1
	cmdBindIP       = 2
	cmdResolveIP    = 3
	cmdResolveRoute = 4
	cmdQueryRoute   = 5
	cmdConnect      = 6
	cmdListen       = 7
	cmdAccept       = 8
	cmdReject       = 9
	cmdDisconnect   = 10
	cmdInitQPAttr   = 11
	cmdGetEvent     = 12
	cmdSetOption    = 14
	cmdNotify       = 15
	cmdJoinIPMcast  = 16
	cmdLeaveMcast   = 17
	cmdMigrateID    = 18
	cmdQuery        = 19
	cmdBind         = 20
	cmdResolveAddr  = 21
	cmdJoinMcast    = 22
	cmdWriteEvent   = 24
)

// The events, enum rdma_cm_event_type.
const (
	eventAddrResolved    = 0
	eventAddrError       = 1
	eventRouteResolved   = 2
	eventConnectRequest  = 4
	eventConnectResponse = 5
	eventUnreachable     = 7
	eventRejected        = 8
	eventEstablished     = 9
	eventDisconnected    = 10
	eventDeviceRemoval   = 11
	eventMulticastJoin   = 12
	eventTimewaitExit    = 15
	eventUser            = 18 // written by the program
	eventInternal        = 19 // written by librdmacm
)

// eventNames are the names that librdmacm gives to the events, without their prefix.
var eventNames = map[uint32]string{
	eventAddrResolved: "ADDR_RESOLVED", eventAddrError: "ADDR_ERROR", eventRouteResolved: "ROUTE_RESOLVED", eventConnectRequest: "CONNECT_REQUEST",
	eventConnectResponse: "CONNECT_RESPONSE", eventUnreachable: "UNREACHABLE", eventRejected: "REJECTED",
	eventEstablished: "ESTABLISHED", eventDisconnected: "DISCONNECTED", eventMulticastJoin: "MULTICAST_JOIN",
	eventTimewaitExit: "TIMEWAIT_EXIT", eventDeviceRemoval: "DEVICE_REMOVAL", eventUser: "USER", eventInternal: "INTERNAL",
}

// Sizes of structures.
const (
	headerLen       = 8   // rdma_ucm_cmd_hdr
	sockaddrLen     = 28  // sockaddr_in6
	storageLen      = 128 // __kernel_sockaddr_storage
	connParamLen    = 272 // rdma_ucm_conn_param
	privateLen      = 256 // RDMA_MAX_PRIVATE_DATA
	eventLen        = 336 // rdma_ucm_event_resp
	oldEventLen     = 324 // without reserved and ece
	eventParam      = 20
	eventECE        = 328
	writeEventLen   = 320 // rdma_ucm_write_cm_event
	routeLen        = 208 // rdma_ucm_query_route_resp
	oldRouteLen     = 200 // without ibdev_index
	addrsLen        = 272 // rdma_ucm_query_addr_resp
	oldAddrsLen     = 264 // without ibdev_index
	pathsLen        = 8   // rdma_ucm_query_path_resp, without paths
	pathDataLen     = 72  // ib_path_rec_data
	pathLen         = 64  // ib_user_path_rec
	qpAttrLen       = 144 // ib_uverbs_qp_attr
	qpAttrAH        = 40
	qpAttrTail      = 124 // pkey_index and the fields after it
	invalidIBIndex  = 0xffffffff
	groupQPN        = 0xffffff
	defaultUDPQKey  = 0x01234567
	defaultIPoIBKey = 0x0b1b
)

// The masks of ibv_modify_qp that INIT_QP_ATTR returns.
const (
	maskState      = 1 << 0
	maskAccess     = 1 << 3
	maskPKeyIndex  = 1 << 4
	maskPort       = 1 << 5
	maskQKey       = 1 << 6
	maskAV         = 1 << 7
	maskPathMTU    = 1 << 8
	maskTimeout    = 1 << 9
	maskRetry      = 1 << 10
	maskRNRRetry   = 1 << 11
	maskRQPSN      = 1 << 12
	maskMaxRd      = 1 << 13
	maskMinRNR     = 1 << 15
	maskSQPSN      = 1 << 16
	maskMaxDestRd  = 1 << 17
	maskDestQPN    = 1 << 20
	accessRemoteWR = 1 << 1
	accessRemoteRD = 1 << 2
	accessAtomic   = 1 << 3
)

// The address families of Linux.
const (
	familyInet  = 2
	familyInet6 = 10
	familyIB    = 27
)

// Sizes of the addresses.
const (
	sockaddrLen4  = 16
	sockaddrIBLen = 48
)

// parseSockaddr reads a sockaddr_in or sockaddr_in6, and returns its size, 0 if it is neither.
func parseSockaddr(b []byte) (a netip.AddrPort, size uint16) {
	port := binary.BigEndian.Uint16(b[2:])
	switch ne.Uint16(b) {
	case familyInet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), sockaddrLen4
	case familyInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port), sockaddrLen
	}
	return netip.AddrPort{}, 0
}

// putSockaddr writes the address into a zeroed sockaddr_in6.
func putSockaddr(b []byte, a netip.AddrPort) {
	binary.BigEndian.PutUint16(b[2:], a.Port())
	switch {
	case !a.Addr().IsValid():
	case a.Addr().Is4():
		ne.PutUint16(b, familyInet)
		v := a.Addr().As4()
		copy(b[4:], v[:])
	default:
		ne.PutUint16(b, familyInet6)
		v := a.Addr().As16()
		copy(b[8:], v[:])
	}
}

// connParam is rdma_ucm_conn_param.
type connParam struct {
	qpn, qkey          uint32
	private            []byte
	srq                bool
	responderResources uint8
	initiatorDepth     uint8
	flowControl        bool
	retryCount         uint8
	rnrRetry           uint8
	valid              bool
}

// parseConnParam reads the structure; its private data is a part of b.
func parseConnParam(b []byte) connParam {
	n := int(b[264]) // at most 255: fits the field
	return connParam{
		qpn: ne.Uint32(b) & groupQPN, qkey: ne.Uint32(b[4:]), private: b[8 : 8+n],
		srq: b[265] != 0, responderResources: b[266], initiatorDepth: b[267], flowControl: b[268] != 0,
		retryCount: min(b[269], 7), rnrRetry: min(b[270], 7), valid: b[271] != 0,
	}
}

func (c connParam) put(b []byte) {
	ne.PutUint32(b, c.qpn)
	ne.PutUint32(b[4:], c.qkey)
	b[264] = byte(copy(b[8:8+privateLen-1], c.private))
	b[265], b[266], b[267], b[268] = flag(c.srq), c.responderResources, c.initiatorDepth, flag(c.flowControl)
	b[269], b[270], b[271] = c.retryCount, c.rnrRetry, flag(c.valid)
}

// udParam is rdma_ucm_ud_param.
type udParam struct {
	qpn, qkey uint32
	ah        ah
	private   []byte
}

func (u udParam) put(b []byte) {
	ne.PutUint32(b, u.qpn)
	ne.PutUint32(b[4:], u.qkey)
	u.ah.put(b[8:])
	b[296] = byte(copy(b[40:40+privateLen-1], u.private))
}

// ah holds the fields of ib_uverbs_ah_attr that RoCE uses.
type ah struct {
	dgid         netip.Addr
	sgidIndex    uint8
	trafficClass uint8
	port         uint8
}

// hopLimit is the hop limit of packets that may be routed.
const hopLimit = 64

func (a ah) put(b []byte) {
	if a.dgid.IsValid() {
		g := a.dgid.As16()
		copy(b, g[:])
	}
	b[20], b[21], b[22] = a.sgidIndex, hopLimit, a.trafficClass
	b[29], b[30] = 1, a.port // is_global, port_num
}

// putPath writes ib_user_path_rec.
func putPath(b []byte, src, dst netip.Addr, mtu, trafficClass uint8) {
	d, s := dst.As16(), src.As16()
	copy(b, d[:])
	copy(b[16:], s[:])
	ne.PutUint32(b[44:], 1) // reversible
	ne.PutUint32(b[48:], uint32(mtu))
	b[52], b[53] = 0xff, 0xff // P_Key
	b[54], b[55], b[56] = hopLimit, trafficClass, 1
	b[58], b[59], b[60], b[61], b[62] = exactly, exactly, rate10Gb, exactly, lifetime
}

// Fields of a path.
const (
	exactly  = 2 // selector of MTU, rate and lifetime
	rate10Gb = 3 // IBV_RATE_10_GBPS
	lifetime = cmcore.DefaultAckTimeout - 1
)

// putPathData writes ib_path_rec_data, with the path as in a MAD.
func putPathData(b []byte, src, dst netip.Addr, mtu, trafficClass uint8) {
	const gmp, primary, bidirectional = 1, 2, 8 | 32
	ne.PutUint32(b, gmp|primary|bidirectional)
	d, s := dst.As16(), src.As16()
	copy(b[16:], d[:])
	copy(b[32:], s[:])
	b[55], b[56], b[57] = hopLimit, trafficClass, 1<<7 // reversible
	b[58], b[59] = 0xff, 0xff                          // P_Key
	b[62], b[63], b[64] = exactly<<6|mtu, exactly<<6|rate10Gb, exactly<<6|lifetime
}

func flag(v bool) byte {
	if v {
		return 1
	}
	return 0
}
