package udp

import (
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// Options tune a socket. The zero value, and nil, mean the fastest.
type Options struct {
	NoGSO  bool // send each datagram for itself
	NoGRO  bool // receive each datagram for itself
	Buffer int  // bytes of each socket buffer to ask for; 0: DefaultBuffer

	// Spin is for how long Recv keeps asking, and lets other goroutines run in
	// between, before it sleeps. Going to sleep and waking up takes longer than a
	// train does, for the sender too, who has to wake. It does so only while
	// datagrams come at shorter intervals than this. 0: DefaultSpin; negative: not
	// at all. Linux only.
	Spin time.Duration
}

// DefaultSpin is the longest wait that Recv spends awake unless Options say otherwise:
// about what sleeping and waking up costs on a virtual machine.
const DefaultSpin = 50 * time.Microsecond

// DefaultBuffer is asked for unless Options say otherwise. The system may grant
// less without privilege (net.core.rmem_max): Caps tells.
const DefaultBuffer = 8 << 20

// Listen opens a socket at addr. Port 0 picks a free one. The address must be a
// definite one, because the invariant CRC covers it: the unspecified address and
// multicast are refused with EINVAL.
func Listen(addr netip.AddrPort, opts *Options) (packetconn.Conn, error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	ip := addr.Addr()
	switch {
	case !ip.IsValid():
		return nil, operr.New("udp listen", syscall.EINVAL, "no address")
	case ip.IsUnspecified(), ip.IsMulticast():
		return nil, operr.New("udp listen", syscall.EINVAL, "address %v: must be one of this host's own addresses, because every packet's checksum covers it", ip)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	o.NoGSO = o.NoGSO || envOn("SOFTMKEY_NO_GSO")
	o.NoGRO = o.NoGRO || envOn("SOFTMKEY_NO_GRO")
	if o.Buffer <= 0 {
		o.Buffer = DefaultBuffer
	}
	return listen(addr, o)
}

// envOn reports whether a switch in the environment is set.
func envOn(name string) bool {
	v, ok := os.LookupEnv(name)
	if !ok || v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	return err != nil || b
}
