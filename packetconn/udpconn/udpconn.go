package udpconn

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

// Port is the UDP port of RoCEv2, the only one that other implementations send to.
const Port = 4791

// Listen opens the socket that a device at addr uses. If the port is 0, the system chooses
// one. The invariant CRC of RoCEv2 covers the address, so Listen returns EINVAL for the
// unspecified address and for multicast and broadcast addresses.
func Listen(addr netip.AddrPort) (packetconn.Conn, error) {
	return udp.Listen(addr, nil)
}
