// Package rocetest provides networks that misbehave, to test what must not.
//
// [Wrap] puts faults into what a connection sends: over UDP, over an in-process
// network, over another faulty connection. [Pair] and [Network] are the short
// forms for tests, in process and with faults both ways.
//
// What happens to which datagram follows from the seed and the order in which
// they are sent, so that a failure of a test that sends in a fixed order can be
// repeated: print the seed. [Options.Filter] decides about single datagrams by
// rule instead. [Conn.Counters] tells what was done, so that a test can insist
// that its faults occurred.
//
// # Time
//
// Faults that take time use the Clock of the Options, package time by default.
// Inside a bubble of testing/synctest that is the bubble's clock, so that a test
// with delays and time-outs of seconds runs in milliseconds, and always alike.
//
// # Identification
//
// A train from which a datagram was taken goes on in parts, and datagrams on
// their way for themselves are trains of one. Over UDP their identification then
// differs from the one that [packetconn.Conn.ID] told the sender. softmkey's receiver
// does not mind, as it cannot see it; a peer that checks it against the invariant
// CRC (Linux's soft-RoCE) takes these for damaged. Wrap the peer's network with
// tc netem instead.
package rocetest
