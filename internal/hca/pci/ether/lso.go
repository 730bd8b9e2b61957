package ether

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Flags of a TCP header that only the last segment has, and that only the first has.
const (
	tcpFIN = 1 << 0
	tcpPSH = 1 << 3
	tcpCWR = 1 << 7
)

// segment cuts a frame into frames with up to size bytes of TCP payload behind copies of
// its headers, and calls send for each. The frame's IP length may be wrong; checksums are
// computed.
func segment(frame []byte, headers, size int, send func(frame []byte)) error {
	const op = "cut a frame"
	l := parseHeaders(frame, headers)
	if l.l4 == 0 || l.proto != protoTCP || l.l4+l.l4Size != headers {
		return failure.New(op, syscall.EINVAL, "%d bytes of headers do not end with a TCP header", headers)
	}
	payload := frame[headers:]
	out := make([]byte, headers, headers+size)
	flags := frame[l.l4+13]
	seq := be.Uint32(frame[l.l4+4:])
	id := uint16(0)
	if !l.v6 {
		id = be.Uint16(frame[l.l3+4:])
	}
	for i := 0; i == 0 || len(payload) > 0; i++ {
		n := min(size, len(payload))
		out = append(out[:0], frame[:headers]...)
		out = append(out, payload[:n]...)
		payload = payload[n:]
		h := l
		h.end = len(out)
		if l.v6 {
			be.PutUint16(out[l.l3+4:], uint16(h.end-l.l3-40))
		} else {
			be.PutUint16(out[l.l3+2:], uint16(h.end-l.l3))
			be.PutUint16(out[l.l3+4:], id+uint16(i))
		}
		be.PutUint32(out[l.l4+4:], seq)
		seq += uint32(n)
		f := flags
		if len(payload) > 0 {
			f &^= tcpFIN | tcpPSH
		}
		if i > 0 {
			f &^= tcpCWR
		}
		out[l.l4+13] = f
		fillChecksums(out, &h, true, true)
		send(out)
	}
	return nil
}

// parseHeaders finds the headers of a frame that is cut. The length that its IP header has
// does not count: the frame is longer than an IP packet can be.
func parseHeaders(frame []byte, headers int) layers {
	head := append([]byte(nil), frame[:headers]...)
	at := headerEthernet
	for at+4 <= len(head) {
		if t := be.Uint16(head[at-2:]); t != typeCVLAN && t != typeSVLAN {
			break
		}
		at += 4
	}
	switch {
	case at+6 > len(head):
		return layers{}
	case be.Uint16(head[at-2:]) == typeIPv4:
		be.PutUint16(head[at+2:], uint16(headers-at))
	case be.Uint16(head[at-2:]) == typeIPv6:
		be.PutUint16(head[at+4:], uint16(headers-at-40))
	}
	return parse(head)
}
