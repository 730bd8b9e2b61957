// Package udpbench measures what the system's UDP gives on loopback without
// anything of ours above it: the limit beside which the transport's own figures
// are printed, in the same run.
//
// A stream is the bare minimum that moves data as RoCEv2 does: trains of
// datagrams, segmented by GSO and received through GRO, and no more on their way
// than the receiver's buffer holds, so that none is lost. A ping-pong sends one
// datagram there and back.
//
// [Raw] does this with blocking system calls of Linux, the least that a program
// can do: [Net] with package net; [Batched] with package udp, which adds what an
// event-driven program needs.
package udpbench

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Variant is a way to use the system's UDP.
type Variant string

// The variants. Raw exists on Linux only.
const (
	Raw     Variant = "raw"     // blocking sendto and recvmsg
	Net     Variant = "net"     // net.UDPConn, ping-pong only
	Batched Variant = "batched" // packetconn.Conn
)

// ErrUnsupported is returned for a variant that the system, or the measurement,
// does not have.
var ErrUnsupported = errors.New("udpbench: not supported here")

// HeaderBytes is what each datagram of a Stream has besides its data: a base
// transport header and the invariant CRC, as each middle packet of a message has.
const HeaderBytes = 16

// defaultTrains is how many trains may be on their way: 2 MiB, which the kernel's
// accounting makes less than 4, fit in a buffer that needs no privilege.
const defaultTrains = 32

// Config describes a measurement.
type Config struct {
	Variant Variant
	Data    int        // bytes in each datagram besides the headers: for a stream, the path MTU of a RoCEv2 connection
	Trains  int        // of a stream, on their way at a time; 0: 32
	Addr    netip.Addr // where both ends are; the zero value: 127.0.0.1

	Spin time.Duration // for Batched: udp.Options.Spin
}

// addr returns the address to listen at.
func (c *Config) addr() netip.AddrPort {
	if !c.Addr.IsValid() {
		return netip.MustParseAddrPort("127.0.0.1:0")
	}
	return netip.AddrPortFrom(c.Addr, 0)
}

// Result of a measurement.
type Result struct {
	Bytes   uint64          // of data, headers not counted, that arrived
	Elapsed time.Duration   // from the first send to the last arrival
	RTT     []time.Duration // of a ping-pong: round trips in rising order, a sample if there were very many
	Count   uint64          // trains, or round trips
}

// GBps returns the rate of data in 10^9 bytes per second.
func (r Result) GBps() float64 { return float64(r.Bytes) / float64(r.Elapsed.Nanoseconds()) }

// RTTQuantile returns the round-trip time that a part q of all, from 0 to 1, did
// not exceed. Latency in the manner of perftest is half of it.
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

// For returns a function to give to Stream or PingPong, that goes on for a time.
func For(d time.Duration) func() bool {
	var end time.Time
	return func() bool {
		if end.IsZero() {
			end = time.Now().Add(d)
		}
		return time.Now().Before(end)
	}
}
