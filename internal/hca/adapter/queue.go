package adapter

import (
	"iter"

	"github.com/softmkey/softmkey/internal/base/fifo"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce"
)

// sendQueue is the send queue of a QP in the program's memory. Indexes count blocks of 64
// bytes and have 16 bits, as in the formats. The engine's lock of the QP guards it.
type sendQueue struct {
	ring  buffer
	count int    // blocks, a power of two
	av    AHAttr // that the program gave

	failed bool // the last request that ended has failed, so that the queue is in SQE or ERR

	rung uint16 // end of the last posted request, from the doorbell
	next uint16 // of the oldest request that was not taken

	// requests is the number of requests that were taken since RESET. It identifies a request in
	// traces: the program's wr_id never leaves the program, and a block's index is the driver's.
	requests uint64

	// ahead is a copy of the queue from block aheadAt on: a batch is read at a time.
	ahead   []byte
	aheadAt uint16
	fetched []byte // room for ahead

	gathering gathering

	addresses map[addressKey]*roce.AH // UD, DCI

	peeked     *sendSlot // decoded at next, not taken
	configured *sendSlot // a UMR that was taken last, or nil
	taken      fifo.Queue[*sendSlot]
	free       []*sendSlot
}

// fetchBlocks is how many blocks a batch has at most.
const fetchBlocks = 64

func (s *sendQueue) init(op string, at Segments, blocks int) error {
	s.count = blocks
	return s.ring.open(op, "the send queue", at, blocks*prm.BlockSize)
}

// posted takes the doorbell's index and reports whether requests came.
func (s *sendQueue) posted(to uint16) bool {
	if to == s.rung || s.count == 0 {
		return false
	}
	s.rung = to
	return true
}

func (s *sendQueue) inFlight() int { return s.taken.Len() }

// bytes returns n blocks from index at on in one piece, from a private copy: the program
// may write over its queue at any time.
func (s *sendQueue) bytes(at uint16, n int) ([]byte, error) {
	off := int(at-s.aheadAt) * prm.BlockSize
	if off+n*prm.BlockSize <= len(s.ahead) {
		return s.ahead[off:][:n*prm.BlockSize], nil
	}
	waiting := min(int(s.rung-at), s.count) // a doorbell beyond the queue: the oldest requests were overwritten
	want := min(max(n, min(waiting, fetchBlocks)), s.count)
	n = min(n, want)
	if s.fetched == nil {
		s.fetched = make([]byte, fetchBlocks*prm.BlockSize)
	}
	buf := s.fetched[:want*prm.BlockSize]
	first := int(at) & (s.count - 1)
	cut := min(want, s.count-first) * prm.BlockSize
	if err := s.ring.read(first*prm.BlockSize, buf[:cut]); err != nil {
		return nil, err
	}
	if err := s.ring.read(0, buf[cut:]); err != nil { // what lies behind the end of the ring, if anything
		return nil, err
	}
	s.ahead, s.aheadAt = buf, at
	return buf[:n*prm.BlockSize], nil
}

// each yields the control segments of the requests that were not begun and stand before index to, with the index behind
// each. It ends at one that cannot be decoded: the queue is about to fail.
func (s *sendQueue) each(to uint16) iter.Seq2[uint16, prm.Control] {
	return func(yield func(end uint16, c prm.Control) bool) {
		for at := s.next; at != to && int(to-at) <= s.count; {
			b, err := s.bytes(at, 1)
			if err != nil {
				return
			}
			c, err := prm.ParseControl(b)
			if err != nil || c.Blocks() > int(to-at) {
				return
			}
			if at += uint16(c.Blocks()); !yield(at, c) {
				return
			}
		}
	}
}

// forget drops the copy: the queue is read anew.
func (s *sendQueue) forget() {
	s.ahead = nil
	s.gathering.forget()
}

func (s *sendQueue) slot() *sendSlot {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		slot.req.Reset()
		return slot
	}
	return new(sendSlot)
}

func (s *sendQueue) reset() {
	for s.inFlight() > 0 {
		s.taken.Pop() // the engine may still hold the slot, so it is not reused
	}
	s.rung, s.next, s.requests, s.peeked, s.configured = 0, 0, 0, nil, nil
	s.failed, s.av = false, AHAttr{}
	s.forget()
}

// recvQueue is the receive queue of a QP in the program's memory. The engine's lock of
// the QP guards it.
type recvQueue struct {
	ring  buffer
	count int
	shift int

	rung  uint16
	next  uint16
	taken uint64 // requests since RESET
	free  []*recvSlot
	buf   []byte
}

func (r *recvQueue) init(op string, at Segments, count, shift int) error {
	r.count, r.shift = count, shift
	r.buf = make([]byte, 1<<shift)
	return r.ring.open(op, "the receive queue", at, count<<shift)
}

func (r *recvQueue) posted(to uint16) bool {
	if to == r.rung || r.count == 0 {
		return false
	}
	r.rung = to
	return true
}

func (r *recvQueue) reset() {
	r.rung, r.next, r.taken = 0, 0, 0
}
