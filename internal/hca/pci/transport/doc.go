// Package transport is what the protocols between virtual machine monitors and devices have in
// common: the contract of the PCI device that is served, messages on a UNIX socket that come
// with file descriptors, and files of guest memory. Packages vfiouser and umlpci are the protocols.
package transport
