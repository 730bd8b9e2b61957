package cm

import "net/netip"

// Addr is the address of one end of a connection: a device's address and a port of the
// RDMA IP CM service. It implements net.Addr.
type Addr netip.AddrPort

// Network returns "rdma".
func (Addr) Network() string { return "rdma" }

// String returns address and port in the format of package net.
func (a Addr) String() string { return netip.AddrPort(a).String() }

// AddrPort returns address and port.
func (a Addr) AddrPort() netip.AddrPort { return netip.AddrPort(a) }
