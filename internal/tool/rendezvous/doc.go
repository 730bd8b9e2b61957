// Package rendezvous brings two programs together that will use a connection of
// package verbs: one listens on a TCP port, the other one connects.
//
// # Without TCP
//
// [ListenCM] and [DialCM] do the same with rdma_cm: the port is one of RDMA_PS_TCP, and
// one RC QP on each side carries the bytes of the conversation. The peer may be a C
// program on librdmacm, such as interop/guest/files/copypeer.c. The rules for both sides:
//
//   - The private data of the request and of the acceptance is empty, and ignored.
//   - Before it connects or accepts, a side posts 8 receive requests of 1024 bytes. It
//     posts a receive request again when it has read the message in it.
//   - The bytes are sent in order, in SENDs of at most 1024 bytes. The boundaries of
//     SENDs mean nothing. A SEND without a receive request waits: the RNR retry count is 7.
//   - Every 2 s a side may send an RDMA WRITE of 0 bytes, to find out whether the peer
//     still answers. The QP must permit remote writes, as librdmacm's QPs do.
//   - A side that disconnects (rdma_disconnect) ends the conversation.
//
// # Strangers
//
// A stranger is a peer that has not yet shown that it is the expected program. Anybody who
// can reach a listener can be one. [Accept] therefore serves connections
// at the same time, each step of a conversation has a time limit, and the failure of one
// connection does not affect the others. The number of strangers is bounded: a new connection
// ends that of the oldest stranger of the same host if that host has a quarter of the places,
// and otherwise that of the oldest of all if no place is free. [CheckDevice] compares the
// address that a peer gives for its device with the address of the peer's connection, so that
// no peer can direct packets at a third host.
package rendezvous
