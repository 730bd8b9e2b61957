// Package udpconn provides the UDP socket that a device opens by default, for programs that
// wrap it.
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
package udpconn
