// Package ether is the Ethernet port of the adapter: send queues with checksums and
// segmentation, receive queues, and the steering of received frames by flow tables and by
// a hash of their addresses.
//
// A [Port] has no goroutine for received frames: whoever reads the network calls
// [Port.Receive]. Frames of send queues go to the network from a goroutine that runs while
// there are some.
//
// # Not emulated
//
// Striding receive queues, LRO, tunnels, flow counters, match criteria beyond the outer
// headers, header modification, hairpin queues, and flow tables other than those of
// received frames.
package ether
