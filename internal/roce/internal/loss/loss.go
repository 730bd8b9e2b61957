// Package loss decides what a reliable connection does about packets that are lost, as sections 9.7.5 and 9.9.2 of the
// InfiniBand specification say: the receiver executes requests in order, and reports a gap with one NAK. The sender goes
// back to the packet that a NAK or a timeout names, and sends all from there on again.
//
// A [Sender] and a [Receiver] know no packets, queue pairs and clocks: they are fed with events, and return decisions.
// Packets have sequence numbers (PSNs) of 24 bits, and times are in nanoseconds. A READ takes one PSN for each response.
package loss

// Mask is the mask of a PSN.
const Mask = 1<<24 - 1

// Diff returns a - b in circular arithmetic of 24 bits, -2^23 to 2^23-1 (section 9.7.2).
func Diff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }

// Never is the deadline if nothing is waited for.
const Never = int64(1<<63 - 1)
