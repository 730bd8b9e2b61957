package roce

import (
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/internal/loss"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
)

var services = map[rdma.QPType]uint8{
	ibv.GSI: wire.ServiceUD, rdma.UD: wire.ServiceUD, rdma.UC: wire.ServiceUC, rdma.RC: wire.ServiceRC,
	ibv.XRCSend: wire.ServiceXRC, ibv.XRCRecv: wire.ServiceXRC, ibv.DCI: wire.ServiceRC, ibv.DCT: wire.ServiceRC,
}

// RecvConfig holds the attributes of the transition from RESET to RTR, as in
// ibv_modify_qp. UC ignores MaxDestRdAtomic and MinRNRTimer. UD and GSI use only MTU and
// QKey, a DCI only MTU, and a DCT only MaxDestRdAtomic, MinRNRTimer, Route and TrafficClass: the initiator
// of a connection chooses its path MTU.
type RecvConfig struct {
	Peer            netip.AddrPort   // address of the peer's device; packets from other IP addresses are dropped. Port 0 means 4791.
	SGIDIndex       int              // entry of the port's GID table: packets leave from its address, and only packets to it are accepted
	DestQPN         uint32           // the peer's QP number, 24 bits
	PSN             uint32           // PSN of the first packet to expect, 24 bits
	MTU             int              // path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload in a packet
	MaxDestRdAtomic int              // largest number of outstanding READs and atomics of the peer, 0 to 128
	MinRNRTimer     uint8            // RNR timer code, 0 to 31, that a peer without a receive request gets; see RNRTimer
	Route           packetconn.Route // route of packets to the peer; without packetconn.Caps.Routes only its hop limit counts
	TrafficClass    uint8            // its upper six bits become the packets' DSCP
	QKey            uint32           // UD: datagrams with another Q_Key are dropped. GSI always uses 0x80010000.
}

// largestMTU is the largest path MTU of the standard.
const largestMTU = wire.MaxPayload

// SendConfig holds the attributes of the transition from RTR to RTS, as in ibv_modify_qp.
// UC, UD and GSI use only PSN.
type SendConfig struct {
	PSN         uint32 // PSN of the first packet to send, 24 bits
	Timeout     uint8  // local ACK timeout, 0 to 31: 4.096 us * 2^Timeout; 0 means no timeout
	RetryCount  uint8  // 0 to 7: timeouts without progress before StatusRetryExcErr
	RNRRetry    uint8  // 0 to 7: RNR NAKs before StatusRNRRetryExcErr; 7 retries without limit
	MaxRdAtomic uint8  // largest number of outstanding READs and atomics, 0 to 128; if 0, they fail with StatusLocQPOpErr
}

// reception holds the attributes of a RecvConfig that a connected QP uses. A port may have very many
// QPs, so each attribute has the smallest type that holds its largest value.
type reception struct {
	Peer            netip.AddrPort
	QKey            uint32
	DestQPN         uint32
	Route           packetconn.Route
	MTU             uint16
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
}

// keep returns the attributes of c that the QP uses. [QP.RTR] has checked that their values are in
// range, so they fit the smaller types.
func (c *RecvConfig) keep() reception {
	return reception{
		Peer: c.Peer, QKey: c.QKey, DestQPN: c.DestQPN, Route: c.Route, MTU: uint16(c.MTU),
		MaxDestRdAtomic: uint8(c.MaxDestRdAtomic), MinRNRTimer: c.MinRNRTimer,
	}
}

// attributes returns the attributes for the recovery from losses.
func (q *endpoint) attributes() loss.Attributes {
	return loss.Attributes{
		Timeout: int64(AckTimeout(q.send.Timeout)), Retries: q.send.RetryCount, RNRRetries: q.send.RNRRetry, Strict: q.link.port.strict,
	}
}

// AckTimeout converts a local ACK timeout code to its duration, 4.096 us * 2^code. It
// returns 0, which means no timeout, for code 0.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}

// RNRTimer converts an RNR timer code to its delay: 10 us for 1 up to 491.52 ms for 31,
// and 655.36 ms for 0 (table 45 of the InfiniBand specification).
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&31]) * 10 * time.Microsecond
}

// rnrTimers holds the RNR timer codes in units of 10 us.
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}
