// Package engine executes the requests of queue pairs. It holds a device's regions,
// memory keys, memory windows and queue pairs, and it does not know who writes the
// requests: package verbs is one front, for Go programs, and the adapter behind
// "softmkey run" is another, for work queues in the memory of somebody's program.
//
// # Pulling
//
// A QP is created with a [Front]. The engine pulls: when the transport has room for
// another message, the engine asks the front for the oldest send request that it has not
// begun, and begins it unless a fence holds it back. Memory is looked up, configurations
// take effect and keys are freed when a request begins, in the order of the send queue.
// When a message of the peer needs a receive request, the engine asks for one. The engine
// reports the end of every request, bad signatures and asynchronous events to the front.
//
// # Locks
//
// Two locks guard a QP: the transport's, under which packets are built and taken, and
// inside of it the QP's own ([QP.Lock]). All methods of a Front are called with both
// held. A front may guard its queues with the QP's lock, and takes the locks of its
// completion queues inside of it.
//
// # Memory
//
// A region stands on a [mkey.Memory]: a slice, which is used in place, or memory that
// can only be copied, which is gathered and scattered in batches through a buffer.
// Closing a region or a key, and invalidating a key, waits until nothing is inside of
// its memory any more.
package engine
