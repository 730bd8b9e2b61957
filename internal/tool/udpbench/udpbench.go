// Package udpbench measures the speed of the system's UDP on loopback. Benchmarks print
// it next to the transport's figures of the same run, as the upper limit.
//
// A stream is the least work that moves data as RoCEv2 does: trains of datagrams,
// segmented by GSO and received through GRO. No more trains are in flight than the
// receiver's buffer holds, so that none is lost. A ping-pong sends one datagram to a
// server and back.
//
// There are three variants. [Raw] uses blocking system calls of Linux, the least work that a
// program can do. [Net] uses package net. [Batched] uses package udp, as devices do.
package udpbench

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Variant selects the interface to the system's UDP.
type Variant string

// The variants. Raw exists on Linux only.
const (
	Raw     Variant = "raw"     // blocking sendto and recvmsg
	Net     Variant = "net"     // net.UDPConn, ping-pong only
	Batched Variant = "batched" // packetconn.Conn
)

// ErrUnsupported is returned for a variant that the system or the measurement does not
// support.
var ErrUnsupported = errors.New("udpbench: not supported here")

// HeaderBytes is the overhead of each datagram of a Stream: a base transport header and
// the invariant CRC, as in a middle packet of a message.
const HeaderBytes = 16

// defaultTrains is the default number of trains in flight. Its 2 MiB count as less than 4
// MiB in the kernel's accounting, which fits a buffer that needs no privilege.
const defaultTrains = 32

// Config configures a measurement.
type Config struct {
	Variant Variant
	Data    int        // payload bytes of each datagram, without headers; for a stream, the path MTU of a RoCEv2 connection
	Trains  int        // trains in flight, for a stream; 0: 32
	Addr    netip.Addr // address of both ends; the zero value is 127.0.0.1

	Spin time.Duration // for Batched: udp.Options.Spin
}

// addr returns the address to listen at.
func (c *Config) addr() netip.AddrPort {
	if !c.Addr.IsValid() {
		return netip.MustParseAddrPort("127.0.0.1:0")
	}
	return netip.AddrPortFrom(c.Addr, 0)
}

// Result is the result of a measurement.
type Result struct {
	Bytes   uint64          // payload bytes that arrived, without headers
	Elapsed time.Duration   // time from the first send to the last arrival
	RTT     []time.Duration // round-trip times of a ping-pong in rising order, limited to the first maxSamples
	Count   uint64          // number of trains or round trips
}

// GBps returns the rate of payload in 10^9 bytes per second.
func (r Result) GBps() float64 { return float64(r.Bytes) / float64(r.Elapsed.Nanoseconds()) }

// RTTQuantile returns the round-trip time that a fraction q of all round trips, from 0 to
// 1, did not exceed. perftest reports half of it as latency.
func (r Result) RTTQuantile(q float64) time.Duration {
	if len(r.RTT) == 0 {
		return 0
	}
	return r.RTT[min(int(q*float64(len(r.RTT))), len(r.RTT)-1)]
}

// String returns the result in words.
func (r Result) String() string {
	if len(r.RTT) > 0 {
		return fmt.Sprintf("%d round trips: median %v, 99%% within %v", r.Count, r.RTTQuantile(0.5), r.RTTQuantile(0.99))
	}
	return fmt.Sprintf("%d trains, %.2f GB/s", r.Count, r.GBps())
}

// For returns a function for Stream or PingPong that returns true for a duration d from
// its first call.
func For(d time.Duration) func() bool {
	var end time.Time
	return func() bool {
		if end.IsZero() {
			end = time.Now().Add(d)
		}
		return time.Now().Before(end)
	}
}
