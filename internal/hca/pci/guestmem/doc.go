// Package guestmem is the memory of a virtual machine: ranges of guest-physical addresses
// that its monitor shares with a device, and takes away again.
//
// A [Map] copies to and from the ranges. [Map.Remove] waits for copies that are under way,
// so that nothing touches a range after it was removed. This is why no view of the memory
// leaves the package.
package guestmem
