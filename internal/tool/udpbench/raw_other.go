//go:build !linux

package udpbench

import "net/netip"

func rawStream(netip.AddrPort, int, int) (sender, receiver, error) {
	return nil, nil, ErrUnsupported
}

func newRawPinger(netip.AddrPort) (pinger, error) { return nil, ErrUnsupported }
