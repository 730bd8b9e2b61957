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

// RQ is a receive queue.
type RQ struct {
	Ring
	CQ         CQ
	CounterSet uint8 // that counts the frames without a buffer

	number uint32
	state  uint8
	next   uint16 // entry that takes the next frame
}

// SQ is a send queue.
type SQ struct {
	Ring
	CQ CQ

	number uint32
	state  uint8
	next   uint16 // block of the next request
	life   uint   // how often the queue was reset
}

// CreateRQ makes a receive queue and returns its number. It is in RESET.
func (p *Port) CreateRQ(q RQ) (uint32, error) {
	const op = "CREATE_RQ"
	if err := q.check(op); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := insert(p, "RQ", p.rqs, &q)
	q.number = n
	return n, err
}

// CreateSQ makes a send queue and returns its number. It is in RESET.
func (p *Port) CreateSQ(q SQ) (uint32, error) {
	const op = "CREATE_SQ"
	if err := q.check(op); err != nil {
		return 0, err
	}
	if 1<<q.LogStride != prm.BlockSize {
		return 0, failure.New(op, syscall.EINVAL, "blocks of 2^%d bytes: must be %d", q.LogStride, prm.BlockSize)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := insert(p, "SQ", p.sqs, &q)
	q.number = n
	return n, err
}

// ModifyRQ sets the state of a receive queue. RESET clears its counters.
func (p *Port) ModifyRQ(n uint32, from, to uint8) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.rqs[n]
	if q == nil {
		return failure.New("MODIFY_RQ", syscall.ENOENT, "RQ %#x does not exist", n)
	}
	return modify("MODIFY_RQ", &q.state, &q.next, from, to)
}

// ModifySQ is ModifyRQ for a send queue.
func (p *Port) ModifySQ(n uint32, from, to uint8) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.sqs[n]
	if q == nil {
		return failure.New("MODIFY_SQ", syscall.ENOENT, "SQ %#x does not exist", n)
	}
	err := modify("MODIFY_SQ", &q.state, &q.next, from, to)
	if err == nil && to == StateReset {
		q.life++
	}
	return err
}

func modify(op string, state *uint8, next *uint16, from, to uint8) error {
	switch {
	case from != *state:
		return failure.New(op, syscall.EINVAL, "from state %d: the queue is in state %d", from, *state)
	case to != StateReset && to != StateReady && to != StateError || to == StateReady && *state == StateError:
		return failure.New(op, syscall.EINVAL, "from state %d to state %d", *state, to)
	}
	if to == StateReset {
		*next = 0
	}
	*state = to
	return nil
}

// RQState returns the state of a receive queue.
func (p *Port) RQState(n uint32) (uint8, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.rqs[n]; q != nil {
		return q.state, nil
	}
	return 0, failure.New("QUERY_RQ", syscall.ENOENT, "RQ %#x does not exist", n)
}

// SQState returns the state of a send queue.
func (p *Port) SQState(n uint32) (uint8, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.sqs[n]; q != nil {
		return q.state, nil
	}
	return 0, failure.New("QUERY_SQ", syscall.ENOENT, "SQ %#x does not exist", n)
}

// DestroyRQ destroys a receive queue.
func (p *Port) DestroyRQ(n uint32) error { return remove(p, "RQ", p.rqs, n) }

// DestroySQ destroys a send queue. Nothing of it is sent any more.
func (p *Port) DestroySQ(n uint32) error { return remove(p, "SQ", p.sqs, n) }
