// Package device opens the device of a command: on an address of this host, with or
// without a recording of its packets.
package device
