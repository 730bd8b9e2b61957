package cm

import "net/netip"

// Addr is the address of one end of a connection: that of a device, and a port
// of the RDMA IP CM service. It implements net.Addr.
type Addr netip.AddrPort

// Network returns "rdma".
func (Addr) Network() string { return "rdma" }

// String returns address and port as package net writes them.
func (a Addr) String() string { return netip.AddrPort(a).String() }

// AddrPort returns address and port.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPort(a) }
