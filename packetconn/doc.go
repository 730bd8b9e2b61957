// Package packetconn defines the network interface of a RoCEv2 port.
//
// [Conn] is an unconnected datagram socket that moves trains of datagrams ([Datagrams])
// in batches. Devices open a UDP socket themselves, so most programs never use a Conn. To
// use another network, a program implements Conn and passes it in verbs.Options. Package
// packetconn/udpconn makes a Conn of a UDP socket or any net.PacketConn.
//
// A Conn that adds something to another one is a [Wrapper]. [Join], [SyscallConn],
// [AsMember] and [AsNeighbor] also find the optional abilities of the Conn inside.
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
// [Conn.ID] returns the identification that the datagrams of a train will have. A network
// without IP headers returns 0 for every datagram.
package packetconn
