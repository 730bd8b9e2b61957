package ether

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Memory is the memory of the guest.
type Memory interface {
	Read(addr uint64, dst []byte) error
	Write(addr uint64, src []byte) error
}

// CQ is a completion queue.
type CQ interface {
	// Complete writes a completion; false: it is lost.
	Complete(e Completion) bool
}

// Completion is an entry of a completion queue, as package prm has them.
type Completion = interface {
	Put(b []byte)
	OpOwn(owner uint8) uint8
}

// States of a queue.
const (
	StateReset = 0
	StateReady = 1
	StateError = 3
)

// Ring is the memory of a queue: pages of 1<<Shift bytes, the first entry at an offset.
type Ring struct {
	Pages     []uint64
	Shift     uint
	Offset    uint64
	LogStride uint // of an entry, in bytes
	LogSize   uint // entries
	Record    uint64
}

// Limits of a ring.
const (
	MinLogStride = 4
	MaxLogStride = 13
	MaxLogSize   = 15
)

// address returns the place of an entry. Entries do not cross pages.
func (r *Ring) address(index uint16) uint64 {
	at := r.Offset + uint64(index)&(1<<r.LogSize-1)<<r.LogStride
	return r.Pages[at>>r.Shift] + at&(1<<r.Shift-1)
}

func (r *Ring) check(op string) error {
	switch {
	case r.LogStride < MinLogStride || r.LogStride > MaxLogStride || r.LogStride > r.Shift:
		return failure.New(op, syscall.EINVAL, "entries of 2^%d bytes: must be 2^%d to 2^%d", r.LogStride, MinLogStride, MaxLogStride)
	case r.LogSize > MaxLogSize:
		return failure.New(op, syscall.EINVAL, "2^%d entries: at most 2^%d", r.LogSize, MaxLogSize)
	case r.Offset&(1<<r.LogStride-1) != 0 || uint64(len(r.Pages))<<r.Shift < r.Offset+1<<(r.LogSize+r.LogStride):
		return failure.New(op, syscall.EINVAL, "%d pages of 2^%d bytes do not hold 2^%d entries of 2^%d from %#x", len(r.Pages), r.Shift, r.LogSize, r.LogStride, r.Offset)
	}
	return nil
}

// counter reads a counter of the doorbell record.
func (r *Ring) counter(mem Memory, off uint64) (uint16, error) {
	var b [4]byte
	err := mem.Read(r.Record+off, b[:])
	return uint16(be.Uint32(b[:])), err
}

// Queue is a send queue or a receive queue.
type Queue struct {
	Ring
	CQ         CQ
	Flush      bool  // flush_in_error_en: in error, the queue completes what is posted with flush errors
	CounterSet uint8 // of a receive queue: it counts the frames without a buffer

	kind   string // "SQ" or "RQ"
	number uint32
	state  uint8
	next   uint16 // block of the next request, or entry that takes the next frame
	life   uint   // how often the queue was reset
}

// CreateRQ makes a receive queue and returns its number. It is in RESET.
func (p *Port) CreateRQ(q Queue) (uint32, error) {
	q.kind = "RQ"
	return p.createQueue(p.rqs, q)
}

// CreateSQ makes a send queue and returns its number. It is in RESET.
func (p *Port) CreateSQ(q Queue) (uint32, error) {
	q.kind = "SQ"
	return p.createQueue(p.sqs, q)
}

func (p *Port) createQueue(all map[uint32]*Queue, q Queue) (uint32, error) {
	op := "CREATE_" + q.kind
	if err := q.check(op); err != nil {
		return 0, err
	}
	if q.kind == "SQ" && 1<<q.LogStride != prm.BlockSize {
		return 0, failure.New(op, syscall.EINVAL, "blocks of 2^%d bytes: must be %d", q.LogStride, prm.BlockSize)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := insert(p, q.kind, all, &q)
	q.number = n
	return n, err
}

// ModifyRQ sets the state of a receive queue. RESET clears its counters.
func (p *Port) ModifyRQ(n uint32, from, to uint8) error { return p.modify("RQ", p.rqs, n, from, to) }

// ModifySQ is ModifyRQ for a send queue.
func (p *Port) ModifySQ(n uint32, from, to uint8) error { return p.modify("SQ", p.sqs, n, from, to) }

func (p *Port) modify(kind string, all map[uint32]*Queue, n uint32, from, to uint8) error {
	op := "MODIFY_" + kind
	p.mu.Lock()
	defer p.mu.Unlock()
	q, err := find(op, kind, all, n)
	switch {
	case err != nil:
		return err
	case from != q.state:
		return failure.New(op, syscall.EINVAL, "from state %d: the queue is in state %d", from, q.state)
	case to != StateReset && to != StateReady && to != StateError || to == StateReady && q.state == StateError:
		return failure.New(op, syscall.EINVAL, "from state %d to state %d", q.state, to)
	}
	if to == StateReset {
		q.next = 0
		q.life++
	}
	q.state = to
	switch {
	case to == StateError && kind == "SQ":
		p.ring(n) // send flushes it, after the frame that it may be sending now
	case to == StateError:
		p.flush(q)
	}
	return nil
}

// RQState returns the state of a receive queue.
func (p *Port) RQState(n uint32) (uint8, error) { return p.stateOf("RQ", p.rqs, n) }

// SQState returns the state of a send queue.
func (p *Port) SQState(n uint32) (uint8, error) { return p.stateOf("SQ", p.sqs, n) }

func (p *Port) stateOf(kind string, all map[uint32]*Queue, n uint32) (uint8, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, err := find("QUERY_"+kind, kind, all, n)
	if err != nil {
		return 0, err
	}
	return q.state, nil
}

// DestroyRQ destroys a receive queue.
func (p *Port) DestroyRQ(n uint32) error { return remove(p, "RQ", p.rqs, n) }

// DestroySQ destroys a send queue. Nothing of it is sent any more.
func (p *Port) DestroySQ(n uint32) error { return remove(p, "SQ", p.sqs, n) }
