// Package mad encodes and decodes the messages of InfiniBand's communication manager: the
// management datagrams (MADs) that two hosts exchange on QP 1 to connect queue pairs.
//
// A MAD has [Len] bytes: a [Header] and the attributes of one message. The messages are
// [REQ], [MRA], [REJ], [REP], [RTU], [DREQ] and [DREP] for connections, [SIDRREQ] and
// [SIDRREP] for datagram services. [Append] encodes a message, [Parse] decodes one.
// Programs that connect by IP address put an [IPHeader] at the start of a request's
// private data.
//
// The package keeps no state and does not use the network.
//
// Sources: InfiniBand Architecture Specification volume 1 release 1.4, sections 12.6 to
// 12.11 (messages), 13.4 (header) and annex A11 (the RDMA IP CM service).
package mad
