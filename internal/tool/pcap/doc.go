// Package pcap records the packets that connections send and receive as a pcapng file,
// for Wireshark and related tools.
//
// A socket delivers payloads without headers, so the recorder builds the headers:
// addresses, ports and type of service are known; don't-fragment is set, as package
// udp sets it on all sockets; lengths and checksums are computed; the time to live is
// 64. The IPv4 identification matters, because the invariant CRC of RoCEv2 covers it.
// For a packet that was sent it is the value that the connection predicted. For a
// packet that was received it is the value that makes the CRC right (see package
// wire), or 0 if there is none. Packets begin with the IP header (LINKTYPE_RAW), since
// the link layer is not known.
//
// A packet that is sent is recorded after the system has accepted it, with the time
// before the call. In the file it always precedes its answer. Each connection is an
// interface of the recording with the connection's address as its name. A packet that a
// connection sends to itself is recorded once, when it is sent.
package pcap
