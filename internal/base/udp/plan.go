package udp

import (
	"github.com/softmkey/softmkey/roce/packetconn"
)

// minSegments is UDP_MAX_SEGMENTS of Linux since GSO exists: datagrams per train.
// Newer kernels take maxSegments.
const (
	minSegments = 64
	maxSegments = 128
)

// message is what one sendmsg sends: n bytes from off of a train. The kernel cuts
// it into datagrams of seg bytes, if seg is not 0.
type message struct {
	train  int
	off, n int
	seg    int
}

// plan cuts trains into messages. It stands at the first byte that has not been
// sent; fill looks ahead from there and done moves on, so that a call that sent
// half of a batch, or a change from GSO to single datagrams, needs no undoing.
type plan struct {
	train int // index of the train that is next
	off   int // bytes of it that went out already
}

// fill plans the next messages, as many as fit in dst, and returns their number.
// With gso a train is one message, without it every datagram is.
func (p plan) fill(dst []message, trains []packetconn.Datagrams, gso bool) int {
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

// done moves the plan behind m, which must be the next message.
func (p *plan) done(m message, trains []packetconn.Datagrams) {
	p.off = m.off + m.n
	if p.off >= len(trains[m.train].Buf) {
		p.train, p.off = m.train+1, 0
	}
}
