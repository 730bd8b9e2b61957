// Package frames moves whole Ethernet frames: through a tap device to the
// host's network stack, or through a UNIX socket to another program.
package frames
