// Package share lets several processes of one user use the UDP port of RoCEv2 at one address,
// each for queue pairs of its own.
//
// # Numbers
//
// Each process has a number from 0 to 63, which is in the top bits of the ids
// that it chooses ([netconn.Member]). The first process has number 0, and
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
// through a UNIX socket (SOCK_SEQPACKET) that connects the two:
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
// Two processes of one user in one network namespace can exchange packets through shared memory
// instead of through the sockets. Both must have called [Conn.Meet]; their addresses may differ.
//
// A ring is a queue of packets in shared memory, for one direction. The sender makes a ring for
// each process that it sends to, and hands it to that process when a queue pair is connected
// ([netconn.Neighbor]). A ring takes 4 MiB of memory. A process accepts 64 rings; the packets of
// further processes, and those of another user's processes, go through the sockets.
//
// The receiver trusts a ring no more than it trusts the network. It copies a packet out of the ring
// before it parses it, because the sender can still change the shared memory. A packet may have any
// content, also a false source address. It needs no invariant CRC, because memory does not damage
// it, and it may be longer than the path MTU.
//
// Each ring has a UNIX socket between its two processes. The sender writes to the socket to wake a
// receiver that sleeps. When one of the processes ends, its end of the socket closes, and the other
// process sends its packets through the sockets of the port again. If the receiver stops emptying a
// ring, the ring becomes full, and the packets that the sender adds to it are lost.
//
// # Names
//
// Processes find each other by names of abstract UNIX sockets, which belong to
// the network namespace, as the address does, and disappear with their process.
// A bound name is also the lock for a number, for a claimed service id, or for
// joining.
//
// A name proves nothing, because anybody in the network namespace can bind it. Both
// ends of a connection therefore look at the credentials that the kernel has for the
// other end (SO_PEERCRED) before anything moves: the user and the user namespace must
// be the same. Without the namespace, root of a container could pass for root of the host.
// A name that a stranger has bound is passed over, and a variant of it is used. The variants depend on a secret of
// the user, a key in the kernel's keyring of the user, so that strangers cannot bind them in advance. Whoever reads
// /proc/net/unix sees names that are in use.
package share
