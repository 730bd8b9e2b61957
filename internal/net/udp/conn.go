package udp

import (
	"cmp"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/net/netconn"
)

// Options configure a socket. A nil *Options and the zero value select the fastest
// settings.
type Options struct {
	NoGSO bool // send each datagram in a message of its own
	NoGRO bool // receive each datagram as a train of its own

	// RecvBuffer and SendBuffer are the requested sizes of the socket's buffers in bytes.
	// 0: DefaultRecvBuffer and DefaultSendBuffer.
	RecvBuffer, SendBuffer int
}

// The default sizes of the socket's buffers in bytes. The receive buffer holds the packets
// that arrive while other programs use the receiver's processor. Without privilege the system
// may grant less (net.core.rmem_max); Caps reports the granted sizes.
const (
	DefaultRecvBuffer = 32 << 20
	DefaultSendBuffer = 8 << 20
)

// Listen opens a socket at addr. If the port is 0, the system chooses one. The invariant
// CRC covers the address, so Listen returns EINVAL for the unspecified address and for
// multicast and broadcast addresses.
func Listen(addr netip.AddrPort, opts *Options) (netconn.Conn, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if err := usable(addr.Addr()); err != nil {
		return nil, err
	}
	return listen(addr, options(opts))
}

// usable returns an error if no socket can be bound to an address.
func usable(ip netip.Addr) error {
	switch {
	case !ip.IsValid():
		return failure.New("udp listen", syscall.EINVAL, "no address")
	case ip.IsUnspecified(), ip.IsMulticast(), IsBroadcast(ip):
		return failure.New("udp listen", syscall.EINVAL, "address %v: must be one of this host's own addresses, because every packet's checksum covers it", ip)
	}
	return nil
}

// options returns opts with the defaults and the environment.
func options(opts *Options) Options {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.NoGSO = o.NoGSO || envOn("SOFTMKEY_NO_GSO")
	o.NoGRO = o.NoGRO || envOn("SOFTMKEY_NO_GRO")
	o.RecvBuffer, o.SendBuffer = cmp.Or(max(o.RecvBuffer, 0), DefaultRecvBuffer), cmp.Or(max(o.SendBuffer, 0), DefaultSendBuffer)
	return o
}

// envOn reports whether an environment variable is set to a true value.
func envOn(name string) bool {
	v := os.Getenv(name)
	on, err := strconv.ParseBool(v)
	return v != "" && (err != nil || on)
}
