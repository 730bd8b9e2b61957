// Package roce implements RoCEv2, the InfiniBand transport over UDP: queue pairs, packets,
// sequence numbers, acknowledgements, retransmission and congestion control. It has
// reliable connections (RC), extended reliable connections (XRC), unreliable connections
// (UC) and unreliable datagrams (UD). The peer may be any RoCEv2 device; the tests use this
// package and Linux's soft-RoCE driver (rdma_rxe).
//
// Most programs use package verbs, which adds memory regions, memory keys, work queues and
// completion queues. This package is for a program that supplies its own memory and queues.
//
// # Ports, queue pairs and handlers
//
// A [Port] has one UDP socket for each of its addresses, which are its GID table. [NewPort]
// takes any [packetconn.Conn], for example one of the in-process network in package inproc. A
// connected QP uses the address that RecvConfig.SGIDIndex selects. A datagram leaves from the
// address that its address handle names, and is received at every address.
//
// A [QP] (queue pair) is one end of a connection, or an endpoint for datagrams. Its
// requester sends the program's requests; its responder carries out the peer's requests.
//
// The program implements one [Handler] for each QP. The QP calls the Handler for the next
// request to send, for the memory that the peer's requests read and write, and to report
// completions. The transport knows nothing of memory keys. It reads a message from a
// [Source] and writes a message to a [Sink], in order, without a buffer between them and
// the socket's. It keeps no copy of sent data: to retransmit a packet, it calls the Source
// again at the packet's offset.
//
// To connect two QPs, the programs exchange addresses, QP numbers and first packet sequence
// numbers (PSNs) by other means, for example over TCP. Each program then calls [QP.RTR] and
// [QP.RTS], and calls [QP.Kick] when its Handler has a new request. The package example sends
// one message in this way.
//
// # Goroutines and locks
//
// A port runs a transmit goroutine, and a receive goroutine for each socket. A receive
// goroutine takes packets from its socket in batches, passes them to their QPs and sends the
// responses. It polls the socket for a while before it blocks, because a wake-up costs more
// than handling a packet. The transmit goroutine runs the timers and sends packets for which
// no other goroutine is sending.
//
// [QP.Kick] sends on the caller's goroutine, unless another goroutine is already sending. A
// program that polls replaces all of them with its own goroutine ([Port.Polling],
// [Port.Poll]). Only one goroutine at a time builds and sends packets, for all QPs in turn,
// so packets leave in the order in which they were built. With [Options.Inside], the goroutine
// that sends also delivers the packets between two QPs of the port, and calls their Handlers.
//
// Each QP has one lock. It is held while a batch of the QP's packets is handled or built,
// and never during a system call. Handler methods run with the lock held.
//
// # Types of queue pairs
//
// [Port.NewQP] takes the type, an [rdma.QPType]:
//
//   - RC delivers every message once and in order, or reports an error.
//   - XRC is RC with the two directions separated: a sending QP whose requests each name a
//     shared receive queue of the peer, and a receiving QP.
//   - UC has SEND and WRITE without acknowledgements. A request completes when its last
//     packet is built. The receiver drops a message if one of its packets is
//     missing.
//   - UD has SEND only, with one packet a message. Each request names its destination with
//     an address handle ([AH]). The receiver drops a datagram if no receive request is
//     posted or if the Q_Key differs. The received data begins with a global route header
//     of 40 bytes. [QP.AttachMulticast] lets a QP receive from an IP multicast group,
//     which has a socket and a receive goroutine of its own.
//   - DCI and DCT are the two ends of the dynamically connected transport, between ports of
//     this package. Each request of a DCI names its DCT with an address handle, a number and
//     an access key. The DCI makes a connection to it and ends the one that it had before. A
//     DCT makes an RC responder for each initiator ([DCTHandler]), up to [MaxInitiators].
//   - GSI is the UD QP with number 1, which carries management datagrams ([Port.OpenGSI]).
//
// # Requests and responses
//
// A requester sets the acknowledge-request bit on the last packet of each message, on the
// last packet before a pause, and several times per window. A responder sends one
// acknowledgement for each batch of packets it received, or for a few of them if a stream
// arrives faster than they are handled, without end-to-end credits.
//
// A responder sends what it owes before any request of its QP, and acknowledges a message before requests that the
// program posts after the message's completion. It reads the memory of a READ before it executes later requests of
// the QP.
//
// An RDMA READ is sent as one request of any length, with one exception. A peer sends all responses that one
// request asks for, and neither the window of this side nor a loss can make it stop. While the window is not at its largest, a long
// READ is therefore sent in parts that fit the window. Each part has a
// request of its own, and up to [SendConfig].MaxRdAtomic are outstanding. The Handler sees one
// completion. The memory may be a key with signatures or encrypted data units, from which
// a READ must begin at the boundary of a block, and the requester does not know where a block begins.
// So the reserved bits of the base transport header state that a part continues the one before it, and a
// responder of this package opens the memory where the first part began. Other responders ignore these
// bits. Only READs from addresses of 4 GiB or more are sent in parts, because keys with blocks of an adapter are
// usually below.
//
// # Loss recovery
//
// Recovery is that of the InfiniBand specification. The responder executes requests in order, drops those that follow a
// missing one, and reports the gap with one NAK. The requester goes back to the packet that a NAK or a timeout names. A
// response of a READ that arrives before an earlier one shows a gap, too: the READ is asked for again from where it broke.
// [SendConfig].RetryCount limits the timeouts without progress, and the reason of a failure says which PSNs do not fit.
//
// The peer reports no gap if the last packets were lost. If nothing is acknowledged for about a round trip, the requester
// therefore sends the oldest packet again, as a question that uses up no retry, as adapters do (adaptive retransmission).
// [Options].StrictTimeouts leaves that out.
//
// # Masked atomics
//
// Masked atomics have opcodes in the range that the specification leaves to manufacturers (0xD8
// and 0xD9), and reach other ports of this package only. Another implementation drops them: the
// request fails with [rdma.StatusRetryExcErr], and the reason names the opcode.
//
// # Congestion control
//
// Two windows per peer limit the bytes in flight, one for requests and one for READ responses. The limit doubles in each
// round trip until the first loss, grows by a packet in each round trip from then on, and is halved for a round trip with
// loss. A congestion notification packet (CNP) from the peer cuts it as DCQCN's reaction
// point does. Packets that arrive with a congestion mark (ECN) are answered with CNPs.
// [Counters] report losses, retransmissions, questions (probes) and timeouts, and [Port.Paths] reports
// the windows.
//
// UC, UD and READ responses are not congestion-controlled by their sender: their
// receivers report neither loss nor delay. UC and UD packets leave at a fixed rate
// ([Options].UnreliableRate), which is the line rate of this port. The rate and the burst are
// chosen so that a receiver which pauses for some milliseconds, because other programs use
// its processor, does not lose packets. A slower link or receiver can still be overrun. UD
// and UC leave that to the application on adapters, too. READ responses are paced by the
// socket's send buffer alone.
//
// # Trust
//
// A packet is dropped and counted unless its invariant CRC is right and it comes from the IP
// address that the QP is connected to. This keeps out damaged packets and packets from
// strangers. It does not protect against a sender that forges the peer's address: only the
// access rights of the memory keys limit that sender. QP numbers are random to make them
// hard to guess, and first PSNs should be random too.
//
// The answer to a packet can be longer than the packet. A READ request is answered with as
// much as it asks for, if the key permits it, and a copy of the request with the same again, as
// the specification requires. Responses go to the address that the QP is connected to, and
// nowhere else. Memory that a peer can make a port allocate is limited, whatever it sends.
//
// A dropped packet changes no memory, with one exception. The payload of a middle packet of
// an RDMA WRITE, or of a READ response, is copied to its destination in the same pass that
// computes the packet's CRC. All headers are checked before the copy: the packet must
// continue an open message with the expected sequence number, operation, position, length
// and partition key, and the message, not the packet, gives the destination. If the CRC is
// wrong, the destination holds damaged bytes until the retransmission overwrites them,
// which happens before the message completes. An application that reads the destination
// before completion may see those bytes.
//
// The payload of a SEND, and of the last packet of a WRITE, is copied only after its CRC was
// found right. Bytes after the end of a SEND are therefore never changed, and an application
// may poll the last byte of a WRITE.
package roce
