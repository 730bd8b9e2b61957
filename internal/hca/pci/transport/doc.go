// Package transport is what the protocols between virtual machine monitors and devices have in
// common: the contract of the PCI device that is served, messages on a UNIX socket that come
// with file descriptors, and files of guest memory. Package vfiouser is the protocol of QEMU,
// interop/umlpci that of User-mode Linux.
package transport
