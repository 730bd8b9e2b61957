// Package share lets several processes of one user use the UDP port of RoCEv2 at one address,
// each for queue pairs of its own.
//
// # Numbers
//
// Each process has a number from 0 to 63, which is in the top bits of the ids
// that it chooses ([packetconn.Member]). The first process has number 0, and
// its socket is an ordinary one. When a second process starts, the first one
// opens a socket for each number, all bound to the same address (SO_REUSEPORT),
// and gives all of them to the second one. A filter in the kernel
// (SO_ATTACH_REUSEPORT_CBPF) reads the destination QP of a packet and chooses
// the socket.
//
// No process is special: each has all sockets, so that none is closed before
// the last process ends. The kernel's order of the sockets, on which the filter
// relies, therefore never changes, and a process may end at any time without an
// effect on the others.
//
// # Handing over
//
// Two kinds of packets can reach the wrong process. That process forwards them
// through a UNIX datagram socket:
//
//   - Packets to QP 1. All processes read them from one socket. The process
//     that reads a packet inspects the MAD: a message names an id of its
//     receiver, and a request names a service id that a process has claimed.
//   - Packets for several processes that arrived as one train, because a sender
//     or GRO put them together. GRO is switched off at all sockets when this
//     first happens.
//
// # Rings
//
// After [Conn.Meet], packets to other processes of the user in the network
// namespace, at this or another address, bypass the sockets if the other
// process has called Meet, too. Each process makes a ring in shared memory for
// each process that it sends to, and hands it over when a queue pair is
// connected ([packetconn.Neighbor]). A process of another user gets no ring: its packets go through
// the sockets. Each process copies what it receives before it reads it. With a ring, the other
// process can do what a host on the network can do with packets, false source addresses included;
// its packets need no CRC, and may be longer than the path MTU. A ring takes 4 MiB of memory, and a
// process accepts 64.
//
// A UNIX socket for each ring wakes a receiver that sleeps, and tells either process that the other
// has ended: packets then go through the sockets again. A ring that is full, because its receiver
// has stopped, loses packets.
//
// # Names
//
// Processes find each other by names of abstract UNIX sockets, which belong to
// the network namespace, as the address does, and disappear with their process.
// A bound name is also the lock for a number, for a claimed service id, or for
// joining. Every message is checked to come from a process of the same user.
package share
