// Package link emulates a network path between two hosts on one machine, for kernels
// without netem. The hosts are network namespaces, each with a TUN device. A forwarder in
// this process carries IP packets from one device to the other and applies a model
// ([netem.Link]): rate, queue, delay, loss, reordering, duplication and ECN marks.
//
// Unmodified programs run on the hosts ([Host.Start]), so TCP and RoCEv2 can be compared
// on the same path. The namespaces have no names: the kernel removes them when the process
// ends, for whatever reason.
//
// The forwarder runs in real time: packets that are due within some tens of microseconds leave together.
package link
