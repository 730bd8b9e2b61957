//go:build !linux

package udp

import (
	"net/netip"

	"github.com/softmkey/softmkey/internal/net/netconn"
)

func listen(addr netip.AddrPort, o Options) (netconn.Conn, error) { return listenPortable(addr, o) }

// pathMTU returns the MTU of the interface, because these systems do not report that of
// the route.
func pathMTU(local, _ netip.Addr) (int, error) { return interfaceMTU(local) }
