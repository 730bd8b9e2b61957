// Package perf measures a connection between two devices of package verbs, in the
// manner of perftest: bandwidth and message rate with many messages in flight, latency
// with one.
//
// A [Client] asks a [Server], which is usually in another process, for one [Case] after
// the other. Both sides create queue pairs, memory and keys for the case, exchange
// their addresses, run the case and destroy everything. The client takes the time.
//
// # Bandwidth
//
// The client keeps Depth messages in flight on each queue pair. A message counts when
// its completion has arrived. The rate is that of data: signature fields and headers do
// not count.
//
// # Latency
//
// The latency of send and write is half of a ping-pong's round trip. Write is RDMA WRITE
// with immediate, so that the peer waits for a completion instead of polling memory.
// The latency of read and fetch-add is that of the whole operation.
//
// # Keys
//
// Every message uses the same memory and, if the case has one, the same memory key,
// which is configured once. The figures therefore contain the work of the key and not
// its configuration.
//
// # The conversation
//
// Requests and answers are lines of JSON. A case and its answer are each followed by a
// line for each queue pair. The server limits the size of each case and of all cases
// together, and trusts nothing that a client sends.
package perf
