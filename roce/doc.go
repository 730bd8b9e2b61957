// Package roce is the reliable connection (RC) transport of InfiniBand over
// UDP: packets, sequence numbers, acknowledgements and retries of RoCEv2.
//
// A [Port] is a UDP socket. A [QP] on it is one end of a connection: it asks
// its [Handler] for work to send, for the memory that the peer wants to read
// and write, and tells it what has been done. The transport knows nothing of
// memory: it reads a message from a [Source] and writes one to a [Sink], in
// order, straight between those and the socket's buffers. It keeps no copy of
// what it sent; a retransmission asks the Source again at the packet's offset.
//
// # Goroutines and locks
//
// A port has two goroutines. One receives: it takes packets in batches, gives
// them to their QPs and sends what they ask for, looking for more packets in
// between. While it has company, it does not sleep: waking up costs more than a
// packet. The other looks after the timers and sends what nobody else does. Whoever
// posts work and calls [QP.Kick] sends it as well, if nobody else is sending at the
// moment. A program that would rather ask again and again than wait takes the first
// one's part ([Port.Polling], [Port.Poll]). One goroutine at a time builds and sends
// packets, for all QPs in turns, so that packets leave in the order in which they were
// built.
//
// A QP has one lock. It is held for a batch of its packets, or for one turn of
// sending, and never while packets are on their way through the system. The
// Handler is called under it.
//
// # Requests and responses on the wire
//
// Requests carry the acknowledge bit at the end of each message and before each
// pause. A responder acknowledges once for each batch of packets it has
// received, without end-to-end credits. An RDMA READ is one request, however long
// it is, and is asked for again from the first packet that is missing. A lost packet
// is told of by a NAK, or by a response to something behind it, at once; by the
// timeout otherwise; and everything from there on is sent again.
//
// # Flow control
//
// The wire has no flow control of its own: packets that find a socket's buffer
// full are lost. Two windows for each peer bound what may be on its way, one
// for requests and one for READ data; loss makes them smaller, acknowledgements
// let them grow again. Congestion notifications count as loss; marks of
// congestion on packets that arrive are answered with such notifications.
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
