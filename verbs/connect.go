package verbs

import (
	"cmp"
	"net/netip"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// Endpoint describes one end of a connection to the other end. Programs exchange their
// endpoints in any way, for example as JSON over TCP.
type Endpoint struct {
	GID     netip.Addr `json:"gid"`            // address of the device
	UDPPort uint16     `json:"port,omitempty"` // UDP port of the device; 0 means RoCEv2's 4791
	QPN     uint32     `json:"qpn"`
	PSN     uint32     `json:"psn"` // first PSN that this end sends
	MTU     int        `json:"mtu"` // largest path MTU of this end, in bytes
}

// Endpoint returns the description of the QP for its peer, with the device's address of GID
// index 0. It contains a random first PSN, which Connect will use. After a RESET it is another one, so that packets of the
// former connection that are still under way do not count for the new one: exchange the endpoints again.
func (qp *QP) Endpoint() Endpoint {
	e, _ := qp.EndpointAt(0)
	return e
}

// EndpointAt is Endpoint with the device's address of another GID index, which the program
// also passes to Connect. It returns EINVAL for an index that is not in the GID table.
func (qp *QP) EndpointAt(sgidIndex int) (Endpoint, error) {
	if qp.e == nil {
		return Endpoint{}, failure.Zero("describe the QP", "PD.NewQP")
	}
	addrs := qp.pd.dev.e.Port().Addrs()
	if sgidIndex < 0 || sgidIndex >= len(addrs) {
		return Endpoint{}, failure.New("describe the QP", syscall.EINVAL, "GID index %d: the table has %d entries", sgidIndex, len(addrs))
	}
	return qp.endpoint(addrs[sgidIndex]), nil
}

func (qp *QP) endpoint(addr netip.AddrPort) Endpoint {
	return Endpoint{
		GID: addr.Addr(), UDPPort: addr.Port(),
		QPN: qp.Num(), PSN: qp.psn.Load(), MTU: qp.pd.dev.PortAttr().ActiveMTU,
	}
}

// ConnectOptions configure a connection. Zero values select the defaults, negative ones none.
type ConnectOptions struct {
	Access      *rdma.Access  // the peer's rights through the QP; nil: all
	MTU         int           // path MTU in bytes: 256, 512, 1024, 2048 or 4096; default: the smaller MTU of the two ends
	Timeout     time.Duration // wait for an answer before a packet is sent again, rounded up to 4.096 µs · 2^n; default 67 ms; negative: without limit
	Retries     int           // how often a packet is sent again before the connection fails, 1 to 7; default 7
	RNRRetries  int           // retries while the peer has no receive request, 1 to 6; default 7, which means without limit
	RNRDelay    time.Duration // the wait before such a retry that is asked of the peer, rounded up to one of 32 times from 10 µs to 655.36 ms; default 0.64 ms; negative: 10 µs
	MaxRdAtomic int           // READs and atomics in flight, as requester and as responder: 1 to 16; default 16
	SGIDIndex   int           // entry of the device's GID table from which packets leave; the peer must have the Endpoint of this entry
}

// Connect moves a QP of type RC or UC from RESET through INIT and RTR to RTS, connected
// to peer. A QP may be connected to itself.
func (qp *QP) Connect(peer Endpoint, opts *ConnectOptions) error {
	if qp.e == nil {
		return failure.Zero("connect", "PD.NewQP")
	}
	if qp.attr.Type == rdma.UD {
		return failure.New("connect", syscall.EINVAL, "a QP of type UD has no connection: use Bind")
	}
	var o ConnectOptions
	if opts != nil {
		o = *opts
	}
	m, err := (*engine.ConnectOptions)(&o).Terms()
	if err != nil {
		return err
	}
	own := qp.Endpoint()
	o.MTU = cmp.Or(o.MTU, min(peer.MTU, own.MTU))
	mtu, ok := ibv.MTUOf(o.MTU)
	if !ok {
		return failure.New("connect", syscall.EINVAL, "MTU %d: must be 256, 512, 1024, 2048 or 4096", o.MTU)
	}
	m.AV = rdma.AH{DGID: rdma.GIDOf(peer.GID), SGIDIndex: o.SGIDIndex, UDPPort: peer.UDPPort}
	m.PathMTU, m.DestQPN, m.RQPSN, m.SQPSN = mtu, peer.QPN, peer.PSN, qp.psn.Load()
	return engine.Connect(qp.attr.Type, true, m, qp.e.Modify)
}

// Init moves a QP of type RC or UC from RESET to INIT, in which receive requests can be posted before the peer's
// first message arrives, with the peer's rights through the QP. The functions of package cm connect such a QP.
func (qp *QP) Init(access rdma.Access) error {
	return qp.modify(ibv.QPModify{State: rdma.StateInit, AccessFlags: access, Port: 1}, ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrAccessFlags)
}

// Bind moves a QP of type UD from RESET to RTS. Datagrams with another Q_Key are dropped.
func (qp *QP) Bind(qkey uint32) error {
	m := ibv.QPModify{State: rdma.StateInit, Port: 1, QKey: qkey, SQPSN: qp.psn.Load()}
	if err := qp.modify(m, ibv.AttrPKeyIndex|ibv.AttrPort|ibv.AttrQKey); err != nil {
		return err
	}
	if err := qp.SetState(rdma.StateRTR); err != nil {
		return err
	}
	m.State = rdma.StateRTS
	return qp.modify(m, ibv.AttrSQPSN)
}
