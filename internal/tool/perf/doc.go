// Package perf measures what a connection between two devices of package verbs
// gives, in the manner of perftest: bandwidth and message rate with many messages
// under way, latency with one.
//
// A [Client] asks a server ([Serve]), usually in another process, for one [Case] after
// another. Both make queue pairs, memory and keys for the case, tell each other, run
// it, and give everything back. The client takes the time.
//
// # What is measured
//
// With bandwidth the client posts messages and keeps Depth of them under way on each
// queue pair. A message counts when its completion is there. The rate is that of
// data: signature fields and headers are not counted.
//
// Latency is that of a ping-pong for send and write, half of a round trip, where
// write is RDMA WRITE with immediate, so that the peer waits for a completion rather
// than looks at memory. For read and fetch-add it is the whole operation.
//
// Every message goes through the same memory and, if the case has one, the same
// memory key, which is configured once: what is measured is the key's work, not
// its configuration.
//
// # The conversation
//
// The client says a line of JSON and the server answers with one, except that a
// line for each queue pair follows a case and its answer. The server takes cases of
// bounded size only, and believes nothing.
package perf
