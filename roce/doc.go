// Package roce is the transport of InfiniBand over UDP: packets, sequence numbers,
// acknowledgements and retries of RoCEv2, for reliable connections (RC), extended ones
// (XRC), unreliable connections (UC) and datagrams (UD).
//
// A [Port] is a UDP socket. A [QP] on it is one end of a connection, or an end of
// datagrams. It calls its [Handler] for work to send and for the memory that the peer
// reads and writes, and reports the results to it. The transport knows nothing of memory
// keys: it reads a message from a [Source] and writes one to a [Sink], in order, directly
// between those and the socket's buffers. It keeps no copy of sent data; a retransmission
// calls the Source again at the packet's offset.
//
// # Goroutines and locks
//
// A port has two goroutines. One receives packets in batches, passes them to their QPs and
// sends the answers; it polls the socket for a while before it sleeps, because a wake-up
// costs more than handling a packet. The other runs the timers and sends whatever nobody
// else sends. A goroutine that posts work and calls [QP.Kick] sends it as well, unless
// another goroutine is sending. A program that polls instead of waiting replaces the
// receive goroutine ([Port.Polling], [Port.Poll]). One goroutine at a time builds and
// sends packets, for all QPs in turn, so that packets leave in the order in which they
// were built.
//
// A QP has one lock. It is held for a batch of its packets or for one turn of sending,
// and never during a system call. The Handler is called under it.
//
// # Types of queue pairs
//
// The [Type] is given to [Port.NewQP]. UC and UD have no acknowledgements: a request
// completes when its last packet was handed to the socket, a message of UC with a missing
// packet is dropped, and so is a datagram without a receive request or with another
// Q_Key. The destination of a datagram is an [AH]. The receiver's buffer starts with a
// global route header of 40 bytes. Management datagrams travel on QP 1, which several
// users of a port share ([Port.OpenGSI]). An XRC QP is one half of an RC QP whose requests
// name a shared receive queue.
//
// # Requests and responses on the wire
//
// Requests carry the acknowledge bit at the end of each message, before each pause, and
// several times per window. A responder acknowledges once for each batch of packets it
// has received, without end-to-end credits. An RDMA READ is one request, however long it
// is: the peer's memory may be a key with blocks, and only the application knows where a
// block starts. Missing responses are requested again from any packet on.
//
// # Recovery
//
// Round-trip times are measured and smoothed. About one round trip after the last
// progress, the requester sends the oldest unacknowledged packet again as a probe; its
// answer shows which packets were lost. Probes use up no retry. RetryCount counts full
// timeouts in which no packet of the peer arrived at all.
//
// Between standard peers, everything from the lost packet on is sent again (go-back-N),
// once per round trip.
//
// Two ends that both offer [CapSelective] when they connect repeat selectively. The
// responder keeps packets that arrive early, within a bound per QP and per port, and
// carries them out in order. A SelectiveAck, a packet with an opcode of the manufacturers'
// range (0xC1), tells the requester which packets have arrived. A packet is lost when three
// packets that were sent after it have arrived; this holds for retransmissions, too, and
// needs no timer. READ responses are repeated likewise: the requester keeps early ones and
// asks for missing ones with a RepeatResponses (0xC2). That packet also grants responses:
// the responder sends no more of a READ than the requester's window has room for.
// Each SEND and WRITE packet states how many READs and atomics before it are outstanding.
// The responder then repeats no older ones, so it does not read the memory of a READ after
// a message on the same QP in which the requester's application says that it has the data.
// For a message on another QP, the requester withdraws what it asked for again when the READ
// completes. The withdrawal is sent once: if it is lost or overtaken, the responder may read
// the memory again while its application uses it. The requester drops these responses. An
// application that must rule this out invalidates the key first.
//
// # Congestion control
//
// Two windows for each peer bound the bytes in flight, one for requests and one for READ
// data. A window grows while nothing is lost. Loss alone does not shrink it for good,
// because a line may lose packets whatever is sent: a cut of the window is an experiment,
// and it is taken back if less is delivered and as much is lost as before. On paths
// with a round trip of a millisecond or more, packets are paced. Congestion notifications
// (CNP) cut the window as DCQCN's reaction point does; congestion marks (ECN) on packets
// that arrive are answered with CNPs. [Counters] report losses, retransmissions, probes
// and timeouts.
//
// UC, UD and the responses to READs of standard peers are not congestion-controlled.
//
// # Trust
//
// A rejected packet touches no memory, with one exception. The payload of a middle
// packet of an RDMA WRITE, or of a response to an RDMA READ, is copied to its place in
// the same pass that computes the packet's CRC. All headers are checked before that
// pass: the packet continues a message that is open, with the expected sequence number,
// operation, position, length and partition key, and the place follows from the message,
// not from the packet. If the CRC turns out to be wrong, damaged bytes stand in that
// place until the retransmission overwrites them, which is before the message
// completes. An application that reads the middle of a WRITE's target or of a READ's
// buffer before it completes may see them.
//
// The payload of a SEND, and of the last packet of a WRITE, is copied after its CRC was
// found right. So no byte behind the end of a SEND changes, and an application may poll
// the last byte of a WRITE.
//
// Packets are dropped and counted unless their invariant CRC is right and they come from
// the IP address that the QP is connected to. That keeps damage and strangers' packets
// out. It is no protection from somebody who can forge that address: only the keys'
// access rights limit such a sender. QP numbers are random for that reason, and first
// PSNs should be.
package roce
