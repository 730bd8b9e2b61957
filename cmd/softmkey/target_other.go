//go:build !linux

package main

import (
	"net/netip"

	"github.com/softmkey/softmkey/packetconn"
)

// near opens the usual network: packets pass through memory on Linux only.
var near func(netip.AddrPort) (packetconn.Conn, error)
