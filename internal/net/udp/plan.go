package udp

import (
	"github.com/softmkey/softmkey/packetconn"
)

// minSegments is the number of datagrams that a GSO call takes on every Linux kernel with
// GSO (UDP_MAX_SEGMENTS). Newer kernels take maxSegments.
const (
	minSegments = 64
	maxSegments = 128
)

// message is the input of one sendmsg: n bytes of a train from offset off. The kernel
// segments it into datagrams of seg bytes, unless seg is 0.
type message struct {
	train  int
	off, n int
	seg    int
}

// plan divides trains into messages. Its position is the first byte not yet sent. fill
// plans from there without moving the position; done moves it. A partly sent batch, or a
// change from GSO to single datagrams, therefore needs no correction.
type plan struct {
	train int // index of the next train
	off   int // bytes of it already sent
}

// fill plans as many of the next messages as fit in dst, and returns their number. With
// gso a message is a whole train, otherwise a datagram.
func (p plan) fill(dst []message, trains []packetconn.Train, gso bool) int {
	n := 0
	for ; p.train < len(trains) && n < len(dst); n++ {
		t := &trains[p.train]
		left := len(t.Buf) - p.off
		m := message{train: p.train, off: p.off, n: left}
		if t.Seg > 0 && left > t.Seg {
			if gso {
				m.seg = t.Seg
			} else {
				m.n = t.Seg
			}
		}
		dst[n] = m
		p.done(m, trains)
	}
	return n
}

// done moves the position past m, which must be the next message.
func (p *plan) done(m message, trains []packetconn.Train) {
	p.off = m.off + m.n
	if p.off >= len(trains[m.train].Buf) {
		p.train, p.off = m.train+1, 0
	}
}
