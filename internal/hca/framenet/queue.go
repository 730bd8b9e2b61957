package framenet

import (
	"net/netip"

	"github.com/softmkey/softmkey/packetconn"
)

// datagram is a packet that was received: n bytes of payload.
type datagram struct {
	addr  netip.AddrPort
	route packetconn.Route
	tos   byte
	n     int
}

// queue holds the packets that wait to be received, with their payloads one after the other in
// one buffer. The zero value is empty.
type queue struct {
	datagrams []datagram
	bytes     []byte
	first     int // index of the oldest packet in datagrams
	at        int // offset of its payload in bytes
}

func (q *queue) empty() bool { return q.first == len(q.datagrams) }

// push appends a copy of a packet, and reports false if the queue is full.
func (q *queue) push(d datagram, payload []byte) bool {
	if len(q.bytes)-q.at+(len(q.datagrams)-q.first)*packetCost+d.n+packetCost > queueBytes {
		return false
	}
	// Before a buffer would grow, the waiting packets are moved to its start if more than
	// half of it is free there.
	if q.at > cap(q.bytes)/2 && len(q.bytes)+d.n > cap(q.bytes) {
		q.bytes, q.at = q.bytes[:copy(q.bytes, q.bytes[q.at:])], 0
	}
	if q.first > cap(q.datagrams)/2 && len(q.datagrams) == cap(q.datagrams) {
		q.datagrams, q.first = q.datagrams[:copy(q.datagrams, q.datagrams[q.first:])], 0
	}
	q.datagrams = append(q.datagrams, d)
	q.bytes = append(q.bytes, payload...)
	return true
}

// train moves the oldest packet to t, with the packets that make a train with it. It reports
// false if the queue is empty.
func (q *queue) train(t *packetconn.Train) bool {
	if q.empty() {
		return false
	}
	d := q.datagrams[q.first]
	t.Addr, t.TOS, t.Route, t.Seg, t.Swap = d.addr, d.tos, d.route, d.n, false
	t.Buf = q.take(t.Buf[:0])
	for count := 1; !q.empty() && count < trainDatagrams; count++ {
		next := q.datagrams[q.first]
		if d.n == 0 || next.n == 0 || next.n > d.n || next.addr != d.addr || next.tos != d.tos || next.route != d.route || len(t.Buf)+next.n > packetconn.RecvSize {
			break
		}
		t.Buf = q.take(t.Buf)
		if next.n < d.n {
			break // only the last packet of a train may be shorter
		}
	}
	return true
}

// take removes the oldest packet and appends its payload to b.
func (q *queue) take(b []byte) []byte {
	n := q.datagrams[q.first].n
	b = append(b, q.bytes[q.at:q.at+n]...)
	q.first++
	q.at += n
	if q.empty() {
		q.datagrams, q.bytes, q.first, q.at = q.datagrams[:0], q.bytes[:0], 0, 0
	}
	return b
}
