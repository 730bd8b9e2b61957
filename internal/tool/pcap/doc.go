// Package pcap records what connections send and receive as a pcapng file, for
// Wireshark and its kin.
//
// A socket sees payloads only. The headers in the recording are put together from
// what is known: addresses, ports and type of service; don't-fragment, as all
// sockets of package udp set it; lengths and checksums, computed; a time to live
// of 64. The IPv4 identification matters, because the invariant CRC of RoCEv2
// covers it: for packets sent it is what the connection foretold, and for packets
// received it is the one that makes the CRC right, if there is one (see package
// wire), else 0. Packets begin with the IP header (LINKTYPE_RAW): nothing is
// known of the link.
//
// What a connection sends is recorded when the system has taken it, with the time
// from before; whatever answers it comes after it in the file. Each connection is
// an interface of the recording, named after its address.
package pcap
