package packetconn

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// The bytes of one GSO call are one UDP datagram to the kernel until it cuts
// them, so that they are limited as a datagram is: 65535 with the IPv4 header and
// the UDP header, and the same without the IPv6 header (which we count all the
// same, to have a limit that holds on either side of the kernel's rounding).
const (
	headerIPv4 = 20
	headerIPv6 = 40
	headerUDP  = 8

	maxBytesIPv4 = 65535 - headerIPv4 - headerUDP
	maxBytesIPv6 = 65535 - headerIPv6 - headerUDP
)

// Headers returns the bytes of the IP and UDP headers in front of each payload.
func Headers(a netip.Addr) int {
	if a.Is4() {
		return headerIPv4 + headerUDP
	}
	return headerIPv6 + headerUDP
}

// MaxBytes returns the largest train, headers not counted, for addresses of a's
// family.
func MaxBytes(a netip.Addr) int {
	if a.Is4() {
		return maxBytesIPv4
	}
	return maxBytesIPv6
}

// Check refuses a train that is over the limits, or goes to an address that a
// Conn at local cannot send to: the rules of Send that hold for every Conn.
func (l Limits) Check(local netip.Addr, t *Datagrams) error {
	const op = "send"
	if to := t.Addr.Addr(); to.Is4() != local.Is4() || !to.IsValid() || to.Is4In6() {
		return operr.New(op, syscall.EINVAL, "destination %v: the socket's own address is %v", to, local)
	}
	if len(t.Buf) > l.Bytes {
		return operr.New(op, syscall.EMSGSIZE, "train of %d bytes: at most %d", len(t.Buf), l.Bytes)
	}
	if n := t.Count(); n > l.Datagrams {
		return operr.New(op, syscall.EMSGSIZE, "train of %d datagrams: at most %d", n, l.Datagrams)
	}
	return nil
}

// TooLarge describes datagrams that the path does not take; mtu is 0 if it is not
// known.
func TooLarge(t *Datagrams, mtu int) error {
	const op = "send"
	size := len(t.At(0)) + Headers(t.Addr.Addr())
	if mtu <= 0 {
		return operr.New(op, syscall.EMSGSIZE, "datagrams of %d bytes with headers to %v: larger than the path's MTU", size, t.Addr)
	}
	return operr.New(op, syscall.EMSGSIZE, "datagrams of %d bytes with headers to %v: the path's MTU is %d", size, t.Addr, mtu)
}

// CheckBuffers refuses buffers that a train may not fit in.
func CheckBuffers(trains []Datagrams) error {
	for i := range trains {
		if n := cap(trains[i].Buf); n < RecvSize {
			return operr.New("receive", syscall.EINVAL, "buffer %d of %d bytes: at least %d", i, n, RecvSize)
		}
	}
	return nil
}
