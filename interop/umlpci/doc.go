// Package umlpci serves a PCI device to a kernel in User-mode Linux (UML): PCI messages in the
// two queues of a virtio device, which the kernel reaches over a vhost-user socket. The kernel's
// sides of it are its options UML_PCI_OVER_VIRTIO and VIRTIO_UML; the messages are those of its
// header uapi/linux/virtio_pcidev.h, the socket's those of the vhost-user protocol
// (https://www.qemu.org/docs/master/interop/vhost-user.html).
//
// [Serve] answers one kernel. Queue 0 has its accesses of the configuration space and of BAR 0,
// which a [transport.Device] executes; queue 1 takes interrupts to it. Unlike a virtual machine
// monitor, the kernel writes the MSI-X table to the device, so it is kept here.
//
// A kernel must take the features VIRTIO_F_VERSION_1 and VIRTIO_RING_F_EVENT_IDX, and memory
// that is passed as files. The part of its memory that holds its own image is not passed, and
// is not reachable.
//
// Not offered: indirect descriptors, packed queues, INTx and MSI interrupts, other regions than
// BAR 0 and the configuration space, the array of pending bits (it reads as the device has it), and the
// setting of a range of a BAR to one value.
package umlpci
