// Package inproc is a network inside one process: the devices of a program reach each
// other without sockets.
//
// A [Network] behaves like one Ethernet segment. [Network.Listen] opens a connection at
// any address, which need not belong to the host, and every connection reaches every
// other. It serves programs that use RDMA between their own parts, examples, and tests on
// machines without a network.
//
// The network follows the rules of UDP, so that a program that works here also works over
// sockets. Trains have the same limits. Datagrams above the MTU are refused. Datagrams to
// an address without a listener are dropped, and so are datagrams for which a slow
// receiver's queue has no room; [Conn.Counters] counts both. The network never loses,
// reorders or damages datagrams otherwise. Package netem adds those faults.
//
// Delivery takes no time. A goroutine that waits in Recv is durably blocked in the sense
// of testing/synctest.
package inproc
