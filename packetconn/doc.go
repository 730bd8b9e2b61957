// Package packetconn defines the network interface of a RoCEv2 port.
//
// [Conn] is an unconnected datagram socket that moves trains of datagrams ([Train])
// in batches. Devices open a UDP socket themselves, so most programs never use a Conn. To
// use another network, a program implements Conn and passes it in verbs.DeviceOptions. Package
// packetconn/udpconn makes a Conn of a UDP socket.
//
// A Conn that adds something to another one is a [Wrapper]. A Conn may implement
// further interfaces, such as [Poller] and [Joiner]; devices also find those of the Conn inside
// of a Wrapper.
//
// # Trains
//
// The packets of one RoCEv2 message go to one peer and have the same size, except for the
// last. A train is a run of datagrams of this kind. On Linux a UDP socket sends or
// receives a whole train in one system call. An implementation that cannot do so may
// deliver every datagram as a train of one.
//
// # Identification
//
// The invariant CRC of RoCEv2 over IPv4 covers the identification field of the IP header.
// An [Identifier] knows the identification that the datagrams of a train will have. Without it the
// device computes the CRC with 0, which suits IPv6 and networks without IP headers.
package packetconn
