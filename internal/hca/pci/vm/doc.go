// Package vm serves an adapter to virtual machines: a vfio-user socket on one side, a
// network of Ethernet frames on the other.
package vm
