// Package vfiouser serves a PCI device to a virtual machine monitor over a UNIX socket: the
// server's side of the vfio-user protocol, version 0.0
// (https://www.qemu.org/docs/master/interop/vfio-user.html).
//
// [Serve] answers the messages of one client. It keeps the map of the guest's memory, hands
// accesses of the configuration space and of BAR 0 to a [transport.Device], and delivers MSI-X
// interrupts by eventfds. It knows nothing of what the device does.
//
// Not offered: other regions than BAR 0 and the configuration space, mapping of regions
// into the guest, INTx and MSI interrupts, migration, dirty page tracking, and DMA by
// messages. A range of the guest's memory without a file descriptor is not reachable.
package vfiouser
