// Package netem emulates networks that lose, damage, delay and reorder packets: for tests, and for the
// faults that a user asks for with --fault.
//
// [Wrap] adds faults to the datagrams sent through a connection: over UDP, over an
// in-process network, or over another faulty connection. [Pair] and [Network] are shorter
// forms for tests, in process and with faults in both directions. [Link] and [Path] model
// the rate, queue, delay and losses of a network path in virtual time.
//
// The seed and the order of sending determine which datagram suffers which fault, so a
// test that sends in a fixed order can be repeated: print the seed. [Options.Filter]
// replaces chance by a rule. [Conn.Counters] counts the faults, so that a test can check
// that they occurred.
//
// # Time
//
// Faults that take time use the Clock of the Options, by default package time. In a
// bubble of testing/synctest this is the bubble's virtual clock: a test with delays and
// timeouts of seconds then runs in milliseconds, and always with the same result.
//
// # Identification
//
// If a datagram of a train suffers a fault, the train is sent in parts. Over UDP, the
// identifications of those parts then differ from the ones that [packetconn.Identifier.ID]
// returned to the sender. softmkey's receiver accepts them, because it cannot see the
// identification. A peer that checks the identification against the invariant CRC, for
// example Linux's soft-RoCE, drops them as damaged. For tests with one of these, use tc
// netem on the peer's network instead.
package netem
