// Package engine executes the requests of queue pairs. It holds a device's regions,
// memory keys, memory windows and queue pairs, and it does not know who writes the
// requests: package verbs is one front, for Go programs, and the adapter behind
// "softmkey run" is another, for work queues in the memory of somebody's program.
//
// # Pulling
//
// A QP is created with a [Front]. When the transport has room for another
// message, the engine asks the front for the oldest send request that has not
// begun, and begins it unless a fence holds it back. Memory is looked up,
// configurations take effect and keys are freed when a request begins, in the
// order of the send queue. When a message of the peer needs a receive request,
// the engine asks for one. The engine reports the end of every request, bad
// signatures and asynchronous events to the front.
//
// # Locks
//
// Two locks guard a QP. The transport's lock is held while packets are built
// and handled; the QP's own lock ([QP.Lock]) is taken after it. All methods of
// a Front are called with both held. A front may guard its queues with the QP's
// lock, and takes the locks of its completion queues after the QP's lock.
//
// # Memory
//
// A region uses a [mkey.Memory]: a slice, which is used in place, or memory
// that can only be copied, which is gathered and scattered in batches through a
// buffer. Closing a region or a key, and invalidating a key, waits until no
// request accesses its memory.
package engine
