// Package guest builds the virtual machine against which the device is tested: a Debian
// kernel with the soft-RoCE driver (rdma_rxe), an independent implementation of RoCEv2.
//
// The machine has no disk. [Build] packs an initramfs from the host's Debian packages. It
// contains busybox, iproute2, the verbs library with the rxe provider, the programs of
// ibverbs-utils, rdmacm-utils and perftest, the kernel modules for networking, soft-RoCE
// and packet loss, and programs of our own, whose sources describe them: rxepeer, which
// tests control over TCP (package peer is its client); cmpeer, which makes a connection on
// librdmacm and stops where a test wants it to stop; and copypeer, the other side of
// softmkey copy --cm.
package guest
