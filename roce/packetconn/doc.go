// Package packetconn defines the network that a RoCEv2 port sends and receives on.
//
// [Conn] is the contract: an unconnected datagram socket that moves trains of
// datagrams ([Datagrams]) in batches. The device opens a UDP socket by itself, so most
// programs never see a Conn. A program that wants another network implements Conn and
// passes it to roce.NewPort or in verbs.Options: a network inside the process (package
// roce/inproc), one that loses and damages packets (package roce/rocetest), one that
// records, or a tunnel of its own.
//
// # Trains
//
// The packets of one RoCEv2 message have the same size except for the last, and go to
// one peer. Such a run of datagrams is one train. On Linux a UDP socket sends and
// receives a whole train with one system call. An implementation that cannot do so may
// deliver every datagram as a train of one.
//
// # Identification
//
// The invariant CRC of RoCEv2 over IPv4 covers the identification field of the IP
// header. [Conn.ID] says which identification the datagrams of a train will carry. A
// network without IP headers returns 0 for every datagram.
package packetconn
