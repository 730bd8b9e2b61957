// Package roce is the reliable connection (RC) transport of InfiniBand over UDP:
// packets, sequence numbers, acknowledgements and retries of RoCEv2.
//
// A [Port] is a UDP socket. A [QP] on it is one end of a connection: it asks its
// [Handler] for work to send, for the memory that the peer wants to read and write, and tells it
// what has been done. The transport knows nothing of memory: it reads a message
// from a [Source] and writes one to a [Sink], in order, straight between those
// and the socket's buffers. It keeps no copy of what it sent; a
// retransmission asks the Source again at the packet's offset.
package roce
