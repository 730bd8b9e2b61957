// Package udptest gives tests loopback addresses that no other test takes.
//
// Devices listen at a fixed UDP port, so tests that run at the same time need different
// addresses. An address computed from a process ID is not enough: two processes can compute the
// same one, and the address can be one that an example has in its text.
package udptest

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// The networks are 127.128.0.0/24 to 127.191.255.0/24. Tests that need addresses in their text take
// them elsewhere in 127.0.0.0/8.
const (
	firstByte = 128
	networks  = 64 << 8
)

// lockPort is the UDP port that locks a network, at the last address of the network. A socket
// needs no cleaning up: the lock ends with the process.
const lockPort = 4790

// locked has the sockets that lock networks, because the garbage collector closes a socket to which
// nothing refers.
var locked struct {
	sync.Mutex
	sockets []*net.UDPConn
}

// Network returns a network of loopback addresses, a /24, that belongs to the calling process until
// it ends. Each call returns a different one. It panics if the system has no loopback addresses but
// 127.0.0.1, or refuses a socket for another reason.
func Network() netip.Prefix {
	start := rand.IntN(networks)
	for i := range networks {
		n := (start + i) % networks
		bytes := [4]byte{127, byte(firstByte + n>>8), byte(n), 255}
		lock, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4(bytes), lockPort)))
		if err == nil {
			locked.Lock()
			defer locked.Unlock()
			locked.sockets = append(locked.sockets, lock)
			return netip.PrefixFrom(netip.AddrFrom4(bytes), 24).Masked()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			panic(err)
		}
	}
	panic("udptest: every network is taken")
}

var own = sync.OnceValue(Network)

// Addr returns the address that ends in last, from 1 to 254, in a network of the calling process. It
// is the same network for all calls.
func Addr(last byte) netip.Addr {
	return at(own(), last)
}

// unused has the addresses that NextAddr has not returned.
var unused struct {
	sync.Mutex
	network netip.Prefix
	next    byte
}

// NextAddr returns another address with each call.
func NextAddr() netip.Addr {
	unused.Lock()
	defer unused.Unlock()
	if unused.next == 0 || unused.next == 255 {
		unused.network, unused.next = Network(), 1
	}
	addr := at(unused.network, unused.next)
	unused.next++
	return addr
}

func at(network netip.Prefix, last byte) netip.Addr {
	bytes := network.Addr().As4()
	bytes[3] = last
	return netip.AddrFrom4(bytes)
}
