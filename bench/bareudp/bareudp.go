// Package bareudp measures the speed of the system's UDP on loopback, with blocking system calls of Linux: the least
// work that a program can do. Benchmarks print it next to the transport's figures of the same run, as the upper limit.
//
// A stream is the least work that moves data as RoCEv2 does: trains of datagrams, segmented by GSO and received through
// GRO. No more trains are in flight than the receiver's buffer holds, so that none is lost. A ping-pong sends one
// datagram to a server and back.
package bareudp

import "time"

// patience is the time after which a missing train or datagram is an error. No measured
// time depends on it.
const patience = 5 * time.Second

// For returns a function for Stream or Ping that returns true for a duration d from its
// first call.
func For(d time.Duration) func() bool {
	var end time.Time
	return func() bool {
		if end.IsZero() {
			end = time.Now().Add(d)
		}
		return time.Now().Before(end)
	}
}
