//go:build !linux

package udp

import (
	"net/netip"

	"github.com/softmkey/softmkey/roce/packetconn"
)

func listen(addr netip.AddrPort, o Options) (packetconn.Conn, error) { return listenPortable(addr, o) }

// pathMTU knows of no better answer than the interface's.
func pathMTU(local, _ netip.Addr) (int, error) { return interfaceMTU(local) }
