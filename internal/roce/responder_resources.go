package roce

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// A resource is a READ or atomic of the peer, with all that is needed to answer it and to
// repeat the answer.
type resource struct {
	kind    wire.Opcode // ReadRequest, or of an atomic; 0: unused
	pending bool        // responses [cur, end) are to be sent
	again   bool        // the request was answered before, and responses are being repeated

	sent   uint32 // responses [0, sent) were sent at least once
	first  uint32 // PSN of its first response
	count  uint32 // number of responses
	cur    uint32
	end    uint32
	start  uint32 // first response of the current answer, which is a first or only packet
	length uint32
	rkey   uint32
	va     uint64
	orig   uint64 // previous value, for an atomic
	src    Source // while pending: the data of the whole READ; nil if it is empty, or kept as far as it is needed

	// kept is, while pending, data that was read in advance: of the responses that had not been sent when the
	// peer's next request arrived.
	kept *storedRead

	// skip is the number of bytes before this READ that the peer asked for in earlier parts
	// of the same READ (wire.ReadContinues). src begins there: the memory may be a key with
	// blocks, and only the first part begins at the boundary of a block.
	skip uint32

	// reported is the largest result of Handler.EndRead for this READ.
	reported uint64
}

// storedRead is the Source of responses whose memory was read before they are sent.
type storedRead struct {
	b    []byte
	from uint64       // offset of b in the message
	of   *storedBytes // that count b
}

func (k *storedRead) ReadAt(p []byte, off uint64) error {
	copy(p, k.b[off-k.from:])
	return nil
}

// has reports whether k has the byte at off.
func (k *storedRead) has(off uint64) bool {
	return k != nil && off >= k.from && off-k.from < uint64(len(k.b))
}

// View implements Viewer.
func (k *storedRead) View(off uint64, n int) []byte { return k.b[off-k.from:][:n] }

var storedReads = sync.Pool{New: func() any { return new(storedRead) }}

// maxKept is the largest number of bytes of READs that a QP reads in advance, and maxStored that of all QPs of a port.
const (
	maxKept   = 1 << 20
	maxStored = 64 << 20
)

// storedBytes counts the bytes that all QPs of a port keep.
type storedBytes struct{ used atomic.Int64 }

// take counts n more bytes, and reports whether the port may keep them.
func (m *storedBytes) take(n int) bool {
	if m.used.Add(int64(n)) > maxStored {
		m.give(n)
		return false
	}
	return true
}

// give removes n bytes.
func (m *storedBytes) give(n int) { m.used.Add(-int64(n)) }

// keepReads reads the memory of all READs that are not answered yet, because the expected request may change it. It
// reports whether that request may be executed now. If the READs are too long to keep, the request counts as lost:
// the sequence NAK that follows the answer makes the peer send it again.
func (q *QP) keepReads(now int64) bool {
	s := &q.resp
	for i := range s.ring {
		e := &s.ring[i]
		if !e.pending || e.src == nil {
			continue
		}
		from := uint64(e.cur) * uint64(q.mtu())
		n := int(min(uint64(e.end)*uint64(q.mtu()), uint64(e.length)) - from)
		if s.kept+n > maxKept || !q.port.kept.take(n) {
			s.nak, s.nakPSN = wire.NAKSequence, s.psn
			s.order.Refused(now)
			return false
		}
		s.kept += n
		k := storedReads.Get().(*storedRead)
		k.b, k.from, k.of = slices.Grow(k.b[:0], n)[:n], uint64(e.skip)+from, &q.port.kept
		err := e.src.ReadAt(k.b, k.from)
		if old := e.kept; old.has(k.from) {
			copy(k.b, old.b[k.from-old.from:])
		} else if old != nil && k.has(old.from) {
			copy(k.b[old.from-k.from:], old.b)
		}
		s.forget(e.kept)
		if e.kept = k; err != nil {
			q.refuseRead(e, psnAdd(e.first, int(e.cur)), remoteNAK(err), err)
			if s.dying != nil {
				return false
			}
			continue
		}
		e.endRead(q.h)
	}
	return true
}

// resource returns the next entry of the ring. If the peer exceeds the agreed number of
// outstanding READs and atomics, it refuses k and returns nil. An entry whose answer is only
// being repeated is reused: the peer has the answer, since it sent new requests, and a late
// duplicate asked for the repetition.
func (q *QP) resource(k *packet) *resource {
	s := &q.resp
	if s.ring == nil {
		s.ring = make([]resource, q.recv.MaxDestRdAtomic)
	}
	if len(s.ring) == 0 || s.ring[s.next].pending && !s.ring[s.next].again {
		q.refuse(NAKInvalidRequest, fmt.Errorf("%v, PSN %#x: more READs and atomics outstanding than max_dest_rd_atomic %d", k.Opcode, k.PSN, q.recv.MaxDestRdAtomic))
		return nil
	}
	e := &s.ring[s.next]
	s.closeRead(e, q.h)
	s.next = uint8((int(s.next) + 1) % len(s.ring))
	return e
}

// latest returns the entry of the last READ or atomic of the peer, or nil.
func (s *responder) latest() *resource {
	if len(s.ring) == 0 {
		return nil
	}
	return &s.ring[(int(s.next)+len(s.ring)-1)%len(s.ring)]
}

// continues makes e, which the peer calls a part, the continuation of the READ before it, if
// it can be one: with the same key, from the end of before on.
func (e *resource) continues(before resource) {
	if before.kind != wire.ReadRequest || before.rkey != e.rkey || before.va+uint64(before.length) != e.va {
		return
	}
	if all := uint64(before.skip) + uint64(before.length); all+uint64(e.length) <= MaxMessage {
		e.skip, e.reported = uint32(all), before.reported
	}
}

// recvRead handles an RDMA READ request.
func (q *QP) recvRead(k *packet) {
	s := &q.resp
	reth := wire.ParseRETH(k.ext)
	if s.kind != idle || reth.Length > MaxMessage {
		q.refuse(NAKInvalidRequest, fmt.Errorf("RDMA READ of %d bytes, PSN %#x: longer than %d or within another message", reth.Length, k.PSN, MaxMessage))
		return
	}
	if !q.permits(k, ibv.WRRead) {
		return
	}
	latest := s.latest()
	e := q.resource(k)
	if e == nil {
		return
	}
	var before resource
	if latest != nil {
		before = *latest
	}
	*e = resource{
		kind: wire.ReadRequest, first: k.PSN, count: packets(reth.Length, q.mtu()),
		length: reth.Length, rkey: reth.RKey, va: reth.VA,
	}
	e.end = e.count
	if k.Mark == wire.ReadContinues {
		e.continues(before)
	}
	q.count(func(n *counters) { n.ReadRequests.Add(1) })
	if !q.openRead(e, k.PSN) {
		*e = resource{}
		return
	}
	s.msn++
	s.expectAfter(int(e.count))
}

// openRead makes READ e pending from response e.start on, whose PSN is psn. A repeated
// READ is opened from its beginning, and a part of a READ from that of the first part, because
// the memory may be a key in which a transfer cannot begin at any offset.
func (q *QP) openRead(e *resource, psn uint32) bool {
	e.src = nil
	if e.length > 0 {
		src, nak := q.h.OpenRead(e.rkey, e.va-uint64(e.skip), e.skip+e.length, e.reported)
		if nak != NAKNone {
			q.refuseRead(e, psn, nak, fmt.Errorf("RDMA READ of %d bytes at %#x with key %#x: %w", e.length, e.va, e.rkey, nak.Err()))
			return false
		}
		e.src = src
	}
	e.cur = e.start
	e.pending = true
	q.resp.open++
	return true
}

// refuseRead rejects READ e with a NAK for response psn. If all its responses were sent
// before, it sends nothing: the request may be a late duplicate whose key is no longer
// valid, and a NAK would end a connection that works.
func (q *QP) refuseRead(e *resource, psn uint32, nak NAK, err error) {
	if e.sent == e.count {
		q.port.n.StaleRequests.Add(1)
		q.resp.closeRead(e, q.h)
		return
	}
	q.refuseAt(psn, nak, err)
}

// closeRead ends the current answer of e.
func (s *responder) closeRead(e *resource, h Handler) {
	if !e.pending {
		return
	}
	e.pending = false
	e.again = true
	s.open--
	e.endRead(h)
	s.forget(e.kept)
	e.kept = nil
}

// forget ends the use of data that was kept. k may be nil.
func (s *responder) forget(k *storedRead) {
	if k == nil {
		return
	}
	s.kept -= len(k.b)
	k.of.give(len(k.b))
	loan.End(k.b)
	storedReads.Put(k)
}

// endRead closes the Source of e, if it has one.
func (e *resource) endRead(h Handler) {
	if src := e.src; src != nil {
		e.src = nil
		e.reported = max(e.reported, h.EndRead(src))
	}
}

// duplicate handles a request that was executed before, whose response was probably lost.
func (q *QP) duplicate(k *packet) {
	s := &q.resp
	if k.layout&(wire.IsSend|wire.IsWrite) != 0 {
		s.ack = true
		return
	}
	for i := range s.ring {
		e := &s.ring[i]
		if e.kind != k.Opcode || psnDiff(k.PSN, e.first) < 0 || uint32(psnDiff(k.PSN, e.first)) >= e.count {
			continue
		}
		if e.kind != wire.ReadRequest {
			if !e.pending {
				e.pending = true
				e.cur = 0
				s.open++
			}
			return
		}
		q.repeatRead(k, e)
		return
	}
	// The request is older than the ring, or differs from the original. It is dropped
	// (class D, section 9.9.3.2).
	q.port.n.StaleRequests.Add(1)
}

// repeatRead repeats the responses of READ e, from the one that k asks for.
func (q *QP) repeatRead(k *packet, e *resource) {
	reth := wire.ParseRETH(k.ext)
	i := uint32(psnDiff(k.PSN, e.first))
	off := uint64(i) * uint64(q.mtu())
	if reth.RKey != e.rkey || reth.VA != e.va+off || off+uint64(reth.Length) > uint64(e.length) {
		q.port.n.StaleRequests.Add(1)
		return
	}
	n := packets(reth.Length, q.mtu())
	if e.pending && e.cur <= i && i+n <= e.end {
		return // the response will be sent anyway
	}
	// The responses with data that was read in advance have not been sent, or did not arrive yet. A later request
	// of the peer may have changed the memory since then, so the new responses have the same data.
	kept := e.kept
	e.kept = nil
	q.resp.closeRead(e, q.h)
	e.start, e.end = i, i+n
	if q.openRead(e, k.PSN) {
		e.kept = kept
	} else {
		q.resp.forget(kept)
	}
}
