package umlpci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
)

const (
	maxEntries = 1024 // of a queue; the kernel's have 256

	descSize  = 16
	descNext  = 1 << 0
	descWrite = 1 << 1

	availRing = 4 // offset of the ring
	usedRing  = 4
	usedSize  = 8 // of an entry
)

// queue is a split virtqueue in the kernel's memory. Its methods are not called concurrently.
type queue struct {
	mem               *guestmem.Map
	entries           uint16 // a power of two
	desc, used, avail uint64 // addresses

	taken    uint16 // chains taken from the available ring so far, modulo 2^16
	returned uint16 // chains put into the used ring so far
	notified uint16 // returned at the time of the last look at the kernel's wish

	room []piece
}

// piece is a part of a chain that the device may write.
type piece struct {
	addr uint64
	len  uint32
}

// chain is a request of the kernel: bytes to read, then room to write.
type chain struct {
	head uint16
	in   []byte
	room []piece
	free uint64 // bytes of room
}

func (q *queue) load16(addr uint64) (uint16, error) {
	var b [2]byte
	err := q.mem.Read(addr, b[:])
	return le.Uint16(b[:]), err
}

func (q *queue) store16(addr uint64, v uint16) error {
	return q.mem.Write(addr, le.AppendUint16(nil, v))
}

// next takes the next available chain. Its bytes to read are put into b. ok: there was one.
func (q *queue) next(b []byte) (c chain, ok bool, err error) {
	avail, err := q.load16(q.avail + 2)
	if err != nil || avail == q.taken {
		return c, false, err
	}
	if avail-q.taken > q.entries {
		return c, false, failure.New("virtqueue", syscall.EPROTO, "%d available chains in a queue of %d", avail-q.taken, q.entries)
	}
	c.head, err = q.load16(q.avail + availRing + 2*uint64(q.taken%q.entries))
	if err != nil {
		return c, false, err
	}
	q.taken++
	q.room = q.room[:0]
	c.in = b[:0]
	at := c.head
	for range q.entries { // more than that is a loop
		if at >= q.entries {
			return c, false, failure.New("virtqueue", syscall.EPROTO, "descriptor %d in a queue of %d", at, q.entries)
		}
		var d [descSize]byte
		if err := q.mem.Read(q.desc+descSize*uint64(at), d[:]); err != nil {
			return c, false, err
		}
		addr, n, flags := le.Uint64(d[0:]), le.Uint32(d[8:]), le.Uint16(d[12:])
		switch {
		case flags&^(descNext|descWrite) != 0:
			return c, false, failure.New("virtqueue", syscall.EPROTO, "a descriptor with flags %#x: indirect ones are not offered", flags)
		case flags&descWrite != 0:
			q.room = append(q.room, piece{addr, n})
			c.free += uint64(n)
		case len(q.room) > 0:
			return c, false, failure.New("virtqueue", syscall.EPROTO, "bytes to read after room to write")
		case uint64(n) > uint64(cap(b)-len(c.in)):
			return c, false, failure.New("virtqueue", syscall.EPROTO, "a chain with more than %d bytes to read", cap(b))
		default:
			at := len(c.in)
			c.in = c.in[:at+int(n)]
			if err := q.mem.Read(addr, c.in[at:]); err != nil {
				return c, false, err
			}
		}
		if flags&descNext == 0 {
			c.room = q.room
			return c, true, nil
		}
		at = le.Uint16(d[14:])
	}
	return c, false, failure.New("virtqueue", syscall.EPROTO, "a chain without an end")
}

// finish writes an answer into a chain's room and gives the chain back.
func (q *queue) finish(c *chain, answer []byte) error {
	rest := answer
	for _, p := range c.room {
		n := int(min(uint64(p.len), uint64(len(rest))))
		if n > 0 {
			if err := q.mem.Write(p.addr, rest[:n]); err != nil {
				return err
			}
		}
		rest = rest[n:]
	}
	entry := le.AppendUint32(make([]byte, 0, usedSize), uint32(c.head))
	entry = le.AppendUint32(entry, uint32(len(answer)-len(rest)))
	if err := q.mem.Write(q.used+usedRing+usedSize*uint64(q.returned%q.entries), entry); err != nil {
		return err
	}
	q.returned++
	return q.store16(q.used+2, q.returned)
}

// interested reports whether the kernel wants an interrupt for the chains that were given back
// since the last call.
func (q *queue) interested() (bool, error) {
	at, err := q.load16(q.avail + availRing + 2*uint64(q.entries))
	if err != nil {
		return false, err
	}
	// It names the chain after whose return it wants one.
	wants := q.returned-at-1 < q.returned-q.notified
	q.notified = q.returned
	return wants, nil
}

// sleep asks the kernel for a kick when there is another chain. It reports whether one has come
// in the meantime.
func (q *queue) sleep() (more bool, err error) {
	if err := q.store16(q.used+usedRing+usedSize*uint64(q.entries), q.taken); err != nil {
		return false, err
	}
	avail, err := q.load16(q.avail + 2)
	return avail != q.taken, err
}
