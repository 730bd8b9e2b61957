package udpconn

import (
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

// Port is the UDP port of RoCEv2, the only one that other implementations send to.
const Port = 4791

// SocketOptions configure a socket. nil and the zero value select the fastest settings.
type SocketOptions struct {
	NoGSO bool // send each datagram in a message of its own
	NoGRO bool // receive each datagram as a train of its own

	// RecvBuffer and SendBuffer are the requested sizes of the socket's buffers in bytes;
	// 0 selects 32 MiB and 8 MiB. The system may grant less: packetconn.Caps reports the
	// granted sizes.
	RecvBuffer, SendBuffer int

	// Spin is the time for which Recv polls before it blocks: blocking and waking up take
	// longer than handling a train. Recv polls only while datagrams arrive at shorter
	// intervals than Spin. 0 selects 50 µs; a negative time means never. Linux only.
	Spin time.Duration
}

// Listen opens the socket that a device at addr uses. If the port is 0, the system chooses
// one. The invariant CRC of RoCEv2 covers the address, so Listen returns EINVAL for the
// unspecified address and for multicast and broadcast addresses.
func Listen(addr netip.AddrPort, opts *SocketOptions) (packetconn.Conn, error) {
	return udp.Listen(addr, (*udp.Options)(opts))
}
