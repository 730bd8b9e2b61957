// Package guest makes the virtual machine that the device is tested against: a
// Debian kernel whose soft-RoCE driver (rdma_rxe) is a RoCEv2 implementation
// that nobody of this project wrote.
//
// The machine has no disk. [Build] packs an initramfs from the host's Debian
// packages: busybox, iproute2, the verbs library with the rxe provider, the
// ready-made programs of ibverbs-utils, rdmacm-utils and perftest, the kernel modules that
// networking, soft-RoCE and packet loss need, and rxepeer, the small program of
// our own that a test drives over TCP (its protocol stands at the top of
// files/rxepeer.c; package peer is its client).
package guest
