// Package udp sends and receives trains of UDP datagrams with few system calls.
//
// A train is a run of datagrams to one peer that have the same size, except for the last:
// the packets of one RoCEv2 message. On Linux one system call sends a whole train
// (UDP_SEGMENT, "GSO"), one sendmmsg sends several trains, and the receiver gets whole
// trains (UDP_GRO, recvmmsg). On other systems the same [packetconn.Conn] uses one call
// per datagram.
//
// # Identification
//
// The invariant CRC of RoCEv2 covers the identification field of the IPv4 header, which a
// UDP socket cannot set. The sender can only predict it. Linux sends the datagrams of an
// unconnected socket that forbids fragmentation (IP_MTU_DISCOVER = DO) with
// identification 0, and counts up from 0 within a GSO call. The sockets of this package
// are configured accordingly, and [packetconn.Conn].ID returns the predicted value. For
// the same reason a train above the limits is refused rather than split: the second part
// would count from 0 again.
//
// # Sizes
//
// Datagrams are never fragmented, because the don't-fragment bit is always set. A
// datagram larger than the path's MTU is refused with EMSGSIZE and an error that names
// both sizes. [PathMTU] returns the limit in advance.
//
// # Waiting
//
// On Linux, sockets are in blocking mode, outside of the runtime's network poller. In the
// poller every datagram would wake a thread, even if no goroutine waits. While datagrams
// arrive quickly, Recv polls, so that nobody has to wake it; otherwise
// it blocks in the system call.
//
// # Environment
//
// If SOFTMKEY_NO_GSO or SOFTMKEY_NO_GRO is set to a value other than 0 or false, all
// sockets work without GSO or GRO. This serves comparisons and works around faulty
// drivers.
package udp
