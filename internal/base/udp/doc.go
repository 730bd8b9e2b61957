// Package udp moves trains of datagrams with as few system calls as the system
// allows.
//
// RoCEv2 packets of one message have the same size but for the last, and go to
// one peer: a train. On Linux the kernel takes a whole train in one call
// (UDP_SEGMENT, "GSO"), several trains in one sendmmsg, and hands trains to the
// receiver as they came (UDP_GRO, recvmmsg). Elsewhere the same [packetconn.Conn] works with
// a call per datagram.
//
// # Identification
//
// The invariant CRC of RoCEv2 covers the identification of the IPv4 header, which
// a UDP socket cannot choose. It can only arrange to know it: Linux sends
// datagrams of an unconnected socket that forbids fragmentation (IP_MTU_DISCOVER
// = DO) with identification 0, and counts up from there within one GSO call.
// [packetconn.Conn.ID] answers what datagram i of a train will carry, and the sockets of
// this package are set up so that the answer is true. This is also the reason why
// a train over the limits is refused and not quietly cut in two: the count would
// start again.
//
// # Sizes
//
// The don't-fragment bit is always set: a datagram larger than the path's MTU is
// refused with EMSGSIZE in words that name both sizes, never fragmented and never
// dropped in silence. [PathMTU] asks beforehand.
//
// # Waiting
//
// On Linux sockets block, outside of the runtime's network poller, in which every
// datagram wakes a thread whether anybody waits for it or not. Recv stays awake for a
// while as long as datagrams come quickly ([Options].Spin), so that nobody has to wake
// it, and sleeps in the system call otherwise.
//
// # Environment
//
// SOFTMKEY_NO_GSO and SOFTMKEY_NO_GRO, when set to anything but 0 or false, turn
// the two off for every socket, to compare or to get around a driver.
package udp
