// Package guest builds the virtual machine against which the device is tested: a Debian
// kernel with the soft-RoCE driver (rdma_rxe), an independent implementation of RoCEv2.
//
// The machine has no disk. [Build] packs an initramfs from the host's Debian packages. It
// contains busybox, iproute2, the verbs library with the rxe provider, the programs of
// ibverbs-utils, rdmacm-utils and perftest, the kernel modules for networking, soft-RoCE
// and packet loss, and rxepeer, a small program that tests control over TCP. The
// beginning of files/rxepeer.c describes its protocol; package peer is its client.
package guest
