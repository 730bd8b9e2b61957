// Package udpconn has networks for RoCEv2 ports that programs wrap: the UDP socket that a
// device opens by itself, and an adapter for any net.PacketConn.
//
// A device of package verbs opens a socket at its address. A program that wants to record,
// count, delay or damage packets opens the socket itself with [Listen], wraps it, and passes
// the wrapper to the device:
//
//	conn, err := udpconn.Listen(netip.AddrPortFrom(addr, udpconn.Port), nil)
//	dev, err := verbs.Open(addr, &verbs.Options{Conn: &counted{Conn: conn}})
//
// The wrapper embeds the packetconn.Conn, has the methods that it changes, and implements
// packetconn.Wrapper, so that multicast and polling go on working. The package example
// counts the packets of a device; package roce/rocetest is a wrapper with faults.
//
// [Adapt] makes a network of a net.PacketConn, such as a tunnel or the sockets of a network
// stack in the program. Every datagram is a system call of its own then.
package udpconn
