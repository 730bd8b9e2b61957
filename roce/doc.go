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
// A [Port] has one UDP socket for each of its addresses, which are its GID table. [Listen]
// opens a port with one address; [NewPort] takes any [packetconn.Conn], for example one of the
// in-process network in package inproc. A connected QP uses the address that
// RecvConfig.SGIDIndex selects. A datagram leaves from the address that its address handle
// names, and is received at every address.
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
//   - GSI is the UD QP with number 1, which carries management datagrams.
//     [Port.OpenGSI] lets several users of a port share it.
//
// # Requests and responses
//
// A requester sets the acknowledge-request bit on the last packet of each message, on the
// last packet before a pause, and several times per window. A responder sends one
// acknowledgement for each batch of packets it received, or for a few of them if a stream
// arrives faster than they are handled, without end-to-end credits.
//
// An RDMA READ is sent as one request of any length. If responses are lost, the requester asks for
// the missing ones. There is one exception. A peer without selective repeat sends all responses that one
// request asks for, and neither the window of this side nor a loss makes it stop. While the window is not at its largest, or the path loses packets, a long
// READ from such a peer is therefore sent in parts of half a window or less. Each part has a
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
// The requester measures and smooths the round-trip time. If an acknowledgement does not
// arrive within about one round trip, it retransmits the oldest unacknowledged packet as a
// probe; the response to the probe shows which packets were lost. A probe does not use up a
// retry. [SendConfig].RetryCount limits the full timeouts without progress. Progress renews
// the retries. Evidence of progress does, too: a READ is being answered, or later packets
// arrive. A peer that answers only with old acknowledgements or sequence NAKs fails the QP as
// a silent one does, and the reason says which PSNs do not fit.
//
// If the peer is another implementation, the requester retransmits all requests from the
// lost one on (go-back-N), at most once per round trip. If only READ responses are lost, it
// keeps those that have arrived, and asks again for the others when the peer has answered the READ to
// its end: from the first missing response of the READ to the last, but not for more than
// the window holds.
//
// Two devices of this kind agree on the payload of a full packet, which may be longer than the path
// MTU of the standard ([Port.Offers], [Payload]).
//
// If both ends offer [CapSelective] when they connect, only lost packets are retransmitted
// (selective repeat):
//
//   - The responder keeps packets that arrive early, up to a limit of memory per QP and per
//     port, and executes them in order. A SelectiveAck packet reports which packets have
//     arrived. Its opcode is 0xC1, in the range that the specification leaves to
//     manufacturers.
//   - The requester considers a packet lost when three packets that were sent after it
//     have arrived. That rule covers retransmitted packets and needs no timer. If the peer
//     acknowledges only probes, twice in a row, the packets before the second probe are lost.
//   - On a path where packets overtake one another further, it waits for more than three. It learns
//     that from requests that were sent again and arrived twice: the Mark of a SelectiveAck is their
//     number. For READ responses, the requester itself sees which ones arrive twice.
//   - The responder reports at most eight new packets with one SelectiveAck, and a loss at once.
//     The work for a SelectiveAck does not grow with the number of packets in flight.
//   - READ responses are repeated in the same way. The requester keeps early responses and
//     asks for missing ones with a RepeatResponses packet (opcode 0xC2).
//   - RepeatResponses also grants responses: the responder sends only as much of a READ as
//     the requester's receive window has room for. It repeats no more than a window of
//     responses for one RepeatResponses, and each of them once.
//
// Selective repeat must not read memory that the application has reused since its READ
// completed. Each SEND and WRITE packet therefore states how many READs and atomics before
// it are still outstanding, and the responder no longer repeats older ones. This covers
// messages on the same QP. For messages on other QPs, the requester withdraws its earlier
// RepeatResponses when the READ completes. The withdrawal is sent once. If it is lost or
// overtaken, the responder may read the memory again while the application uses it; the
// requester drops those responses. An application that must rule this out invalidates the
// key before it reuses the memory.
//
// # Masked atomics
//
// Masked atomics have opcodes in the range that the specification leaves to manufacturers (0xD8
// and 0xD9), and reach other ports of this package only. Another implementation drops them: the
// request fails with [rdma.StatusRetryExcErr], and the reason names the opcode.
//
// # Congestion control
//
// Two windows per peer limit the bytes in flight, one for requests and one for READ
// responses. Loss alone is not taken for congestion, because a line may lose packets at any
// rate. How the limit follows from the path depends on its round trip without queues, the
// shortest one that was measured:
//
//   - On a path of a millisecond or more, requests follow a model of the path as in BBR: the
//     highest delivery rate of the last rounds, and the shortest round trip. Packets are paced at
//     the rate, and the window is twice what the path holds. Every eighth round probes for a
//     higher rate. Loss has no part in it.
//   - On a shorter path, timers are too coarse to pace packets. The window grows while no packets
//     are lost. After a loss it is cut as an experiment; the cut is undone if the loss stays the
//     same and less data arrives.
//     A window for requests of a few packets, which only a short queue explains, also compares
//     the loss of smaller limits with that of larger ones: if it differs, none of it is
//     the line's. Without that, a TCP stream that takes what a cut leaves would look like a lossy
//     line. The window for READ responses follows the first rules on every path, because the
//     peer sends them and cannot pace them for it.
//
// A congestion notification packet (CNP) from the peer cuts the window as DCQCN's reaction
// point does. Packets that arrive with a congestion mark (ECN) are answered with CNPs.
// [Counters] report losses, retransmissions, probes and timeouts, and [Port.Paths] reports
// the windows.
//
// UC, UD and READ responses to other implementations are not congestion-controlled: their
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
