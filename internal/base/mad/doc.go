// Package mad has the messages of InfiniBand's communication manager: the
// management datagrams (MADs) that two hosts exchange on their QP 1 to connect
// queue pairs.
//
// A MAD is [Len] bytes: a [Header] and the attributes of one message. The
// messages are [REQ], [MRA], [REJ], [REP], [RTU], [DREQ] and [DREP] for
// connections, [SIDRREQ] and [SIDRREP] for datagram services. [Append] writes
// one, [Parse] reads one. [IPHeader] is what programs that connect by IP address
// put first into a request's private data.
//
// The package is pure: it keeps no state and knows no network.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, sections
// 12.6 to 12.11 (messages), 13.4 (header) and annex A11 (the RDMA IP CM
// service).
package mad
