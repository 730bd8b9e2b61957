// Package share lets several processes of one user use the UDP port of RoCEv2 at one address,
// each for queue pairs of its own.
//
// # Numbers
//
// Each process has a number from 0 to 63, which stands in the top bits of the ids that it
// chooses ([packetconn.Member]). The first process has number 0, and its socket is an ordinary
// one. When a second process comes, the first one opens a socket for each number, all bound to
// the same address (SO_REUSEPORT), and gives all of them to the second one. A filter in the
// kernel (SO_ATTACH_REUSEPORT_CBPF) reads the destination QP of a packet and chooses the socket.
//
// No process is special: each has all sockets, so that none is closed before the last process
// ends. The kernel's order of the sockets, which the filter counts on, therefore never changes,
// and a process may end at any time without an effect on the others.
//
// # Handing over
//
// Two kinds of packets reach a process that they are not for. It hands them over through a
// UNIX datagram socket:
//
//   - Packets to QP 1. One socket is for all of them, and whoever reads a packet first looks
//     into the MAD: messages name an id of the receiver, requests a service id that a process
//     has claimed.
//   - Packets for several processes that arrived as one train, because a sender or GRO put them
//     together. GRO is switched off at all sockets when this happens first.
//
// # Names
//
// Processes find each other by names of abstract UNIX sockets, which belong to the network
// namespace, as the address does, and disappear with their process. Bound names also are the
// locks: of a number, of a claimed service id, and of joining. Every message is checked to come
// from a process of the same user.
package share
