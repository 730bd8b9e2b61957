// Package vm serves an adapter to virtual machines: a socket on one side, over which
// QEMU (vfio-user) or a kernel in User-mode Linux (vhost-user) reaches it, and a network of Ethernet
// frames on the other.
package vm
