package netconn

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/packetconn"
)

// For the kernel, the payload of a GSO call is one UDP datagram until it is segmented, so
// the limit of a datagram applies: 65535 bytes including the UDP header and, for IPv4,
// the IP header. For IPv6 the IP header does not count; it is subtracted here all the
// same, to stay below the limit on every kernel.
const (
	headerIPv4 = 20
	headerIPv6 = 40
	headerUDP  = 8
	maxPacket  = 65535
)

// Headers returns the length of the IP and UDP headers before each payload.
func Headers(a netip.Addr) int {
	if a.Is4() {
		return headerIPv4 + headerUDP
	}
	return headerIPv6 + headerUDP
}

// MaxBytes returns the length of the largest train, without headers, for the address
// family of a.
func MaxBytes(a netip.Addr) int { return maxPacket - Headers(a) }

// TooLarge returns the error for datagrams that are larger than the path's MTU. mtu is 0
// if the MTU is unknown.
func TooLarge(t *packetconn.Train, mtu int) error {
	const op = "send"
	size := len(t.At(0)) + Headers(t.Addr.Addr())
	if mtu <= 0 {
		return failure.New(op, syscall.EMSGSIZE, "datagrams of %d bytes with headers to %v: larger than the path's MTU", size, t.Addr)
	}
	return failure.New(op, syscall.EMSGSIZE, "datagrams of %d bytes with headers to %v: the path's MTU is %d", size, t.Addr, mtu)
}

// CheckBuffers returns an error if a buffer is smaller than packetconn.RecvSize.
func CheckBuffers(trains []packetconn.Train) error {
	for i := range trains {
		if n := cap(trains[i].Buf); n < packetconn.RecvSize {
			return failure.New("receive", syscall.EINVAL, "buffer %d of %d bytes: at least %d", i, n, packetconn.RecvSize)
		}
	}
	return nil
}
