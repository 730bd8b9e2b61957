//go:build !linux

package udp

import "net/netip"

func listen(addr netip.AddrPort, o Options) (Conn, error) { return listenPortable(addr, o) }

// pathMTU knows of no better answer than the interface's.
func pathMTU(local, _ netip.Addr) (int, error) { return interfaceMTU(local) }
