// Package udpconn provides networks for RoCEv2 ports: the UDP socket that a
// device opens by default, and an adapter for any net.PacketConn. Programs can
// wrap both.
//
// A device of package verbs opens a socket at its address. A program that wants to record,
// count, delay or damage packets opens the socket itself with [Listen], wraps it, and passes
// the wrapper to the device:
//
//	conn, err := udpconn.Listen(netip.AddrPortFrom(addr, udpconn.Port))
//	dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: &counted{Conn: conn}})
//
// The wrapper embeds the packetconn.Conn, overrides the methods that it
// changes, and implements packetconn.Wrapper, so that multicast and polling
// still work. The package example counts the packets of a device.
//
// [Adapt] makes a network of a net.PacketConn, for example a tunnel or a socket
// of a network stack in user space. Each datagram is then sent and received by
// its own call.
package udpconn
