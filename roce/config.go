package roce

import (
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/internal/base/wire"
)

// Type is the transport service of a QP. The values are those of the kernel's enum
// ib_qp_type, which libibverbs shares.
type Type uint8

// The types of a QP.
const (
	TypeGSI     Type = 1  // unreliable datagram QP number 1, which carries management datagrams
	TypeRC      Type = 2  // reliable connection
	TypeUC      Type = 3  // unreliable connection: lost packets drop their message
	TypeUD      Type = 4  // unreliable datagram: one packet a message, each with its own destination
	TypeXRCSend Type = 9  // requester of an extended reliable connection: each Work names a shared receive queue
	TypeXRCRecv Type = 10 // responder of an extended reliable connection
)

var services = map[Type]uint8{
	TypeGSI: wire.ServiceUD, TypeUD: wire.ServiceUD, TypeUC: wire.ServiceUC, TypeRC: wire.ServiceRC,
	TypeXRCSend: wire.ServiceXRC, TypeXRCRecv: wire.ServiceXRC,
}

// State is a QP's state. The values are those of enum ibv_qp_state.
type State uint8

// The states of the transport. INIT is RESET here. SQD is StateRTS with a [Handler] that
// returns nothing from Next. There is no SQE: a Work of a UC or UD QP that fails puts the
// QP in StateErr, as that of an RC QP does.
const (
	StateReset State = 0 // takes no packets
	StateRTR   State = 2 // ready to receive: answers the peer's requests
	StateRTS   State = 3 // ready to send
	StateErr   State = 6 // takes no packets; everything begun was flushed
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case StateReset:
		return "RESET"
	case StateRTR:
		return "RTR"
	case StateRTS:
		return "RTS"
	case StateErr:
		return "ERR"
	}
	return "state?"
}

// RecvConfig is the configuration that takes a QP from RESET to RTR: ibv_modify_qp's
// attributes of that transition. UC ignores MaxDestRdAtomic and MinRNRTimer; UD and GSI
// use MTU and QKey only.
type RecvConfig struct {
	Peer            netip.AddrPort // where the peer's device listens; packets from another IP address are dropped. Port 0 means 4791.
	DestQPN         uint32         // the peer's QP number, 24 bits
	MTU             int            // path MTU: 256, 512, 1024, 2048 or 4096 bytes of payload in a packet
	PSN             uint32         // the first PSN to expect, 24 bits
	MaxDestRdAtomic int            // READs and atomics of the peer that can be asked for again, 0 to 128
	MinRNRTimer     uint8          // RNR timer code, 0 to 31, sent to a peer that must wait; see RNRTimer
	Selective       bool           // the peer can repeat selectively, too: see CapSelective
	QKey            uint32         // UD: datagrams with another Q_Key are dropped. GSI always uses 0x80010000.
}

// CapSelective is the bit of a connection's exchanged capabilities that stands for
// selective repeat. Both ends set RecvConfig.Selective if both offer it.
const CapSelective = 1

// SendConfig is the configuration that takes a QP from RTR to RTS. UC, UD and GSI use PSN
// only.
type SendConfig struct {
	PSN         uint32 // the first PSN to send, 24 bits
	Timeout     uint8  // local ACK timeout, 0 to 31: 4.096 us * 2^Timeout; 0 waits for ever
	RetryCount  uint8  // 0 to 7: retries without an answer before RetryExcErr
	RNRRetry    uint8  // 0 to 7: retries after RNR before RNRRetryExcErr; 7 retries for ever
	MaxRdAtomic int    // READ requests and atomics on their way at a time, 0 to 128; with 0 those fail with LocQPOpErr
}

// AckTimeout returns the time that a timeout code means, 0 for never: 4.096 us
// times two to the power of code.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}

// RNRTimer returns how long an RNR timer code asks to wait: 10 us for 1 up to
// 491.52 ms for 31, and 655.36 ms for 0 (table 45 of the InfiniBand
// specification).
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&31]) * 10 * time.Microsecond
}

// rnrTimers holds the RNR timer codes in units of 10 us.
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}
