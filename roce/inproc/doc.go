// Package inproc is a network inside one process: devices of one program reach
// each other without sockets.
//
// A [Network] is like one Ethernet segment. [Network.Listen] puts a connection at
// an address of the caller's choice, which need not belong to the host, and every
// connection of the network reaches every other. A program that uses RDMA between
// its own parts, an example, or a test in a place without network opens its
// devices on one.
//
// It keeps the rules of UDP, so that nothing that works here fails on a wire:
// trains have the same limits, datagrams over the MTU are refused, whatever is
// sent to an address where nobody listens vanishes, and a receiver that is too
// slow loses what does not fit in its queue. [Conn.Counters] tells. It does not
// lose, reorder or damage anything otherwise; package rocetest does that on
// demand.
//
// Time plays no part in it, and a goroutine that waits for a train waits in a way
// that testing/synctest understands.
package inproc
