// Package frames moves whole Ethernet frames: through a tap device, which the host's own
// network stack is at the other end of, or through a UNIX socket to another program.
package frames
