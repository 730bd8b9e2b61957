// Package rendezvous brings two programs together that will use a connection of
// package verbs: one listens on a TCP port, the other one connects.
//
// # Without TCP
//
// [ListenCM] and [DialCM] do the same with rdma_cm: the port is one of RDMA_PS_TCP, and
// one RC QP on each side carries the bytes of the conversation. The peer may be a C
// program on librdmacm; interop/guest/files/copypeer.c is one. Its side of the format:
//
//   - The private data of the request and of the acceptance is empty, and ignored.
//   - Before it connects or accepts, a side posts 8 receive requests of 1024 bytes. It
//     posts a receive request again when it has read the message in it.
//   - The bytes are sent in order, in SENDs of at most 1024 bytes. The boundaries of
//     SENDs mean nothing. A SEND without a receive request waits: the RNR retry count is 7.
//   - Every 2 s a side may send an RDMA WRITE of no bytes, to find out whether the peer
//     is still there. The QP must permit remote writes, as librdmacm's QPs do.
//   - A side that disconnects (rdma_disconnect) ends the conversation.
//
// # Strangers
//
// A listener may be reached by strangers. [Listener.Serve] and [Accept] serve
// connections side by side, each step of a conversation has a time limit, and a
// connection that fails ends alone. When strangers hold all places, a new connection
// takes that of the oldest: that of the same host if it has a quarter of them. [CheckDevice] holds the address that a peer
// gives for its device against the address of the peer's connection, so that no
// peer can direct packets at a third host.
package rendezvous
