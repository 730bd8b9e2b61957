// Package link emulates a network path between two hosts of one machine, on kernels that
// have no netem: the hosts are network namespaces, each with a TUN device, and a forwarder
// in this process carries IP packets from one device to the other as a model
// ([rocetest.Link]) says: rate, queue, delay, loss, reordering, duplication, ECN marks.
//
// Programs that know nothing of this run on the hosts ([Host.Command]), so that TCP and
// RoCEv2 meet the same path. The namespaces have no names: the kernel removes them when
// the process ends, by whatever cause.
//
// The forwarder runs in real time, with the precision of the system's timers: datagrams
// that are due within some tens of microseconds leave together.
package link
