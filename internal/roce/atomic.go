package roce

import (
	"fmt"
	"math"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/wire"
)

// Atomic is an atomic operation on a word of the responder's memory. Numbers are in host order.
type Atomic struct {
	Op   ibv.WROp // WRCmpSwap, WRFetchAdd, or a masked one
	RKey uint32
	VA   uint64 // address of the word, a multiple of Size
	Size int    // bytes of the word: 8, and 4 or 8 of masked atomics

	CompareAdd uint64 // the value to compare with or to add
	Swap       uint64 // WRCmpSwap, WRMaskedCmpSwap: the value to store

	// CompareMask has the bits that WRMaskedCmpSwap compares. For WRMaskedFetchAdd it has
	// the highest bit of each field: the carry out of that bit is lost.
	CompareMask uint64
	SwapMask    uint64 // WRMaskedCmpSwap: the bits to store
}

// Next returns the value that replaces old, and whether it is to be stored.
func (a Atomic) Next(old uint64) (v uint64, store bool) {
	compare, swap := a.CompareMask, a.SwapMask
	switch a.Op {
	case ibv.WRFetchAdd:
		return old + a.CompareAdd, true
	case ibv.WRMaskedFetchAdd:
		// The highest bit of a field is the sum without a carry out of it. The bits
		// below it are added with that bit clear in both numbers, so that their carry
		// ends in it.
		v = old&^compare + a.CompareAdd&^compare ^ (old^a.CompareAdd)&compare
		return v & a.all(), true
	case ibv.WRCmpSwap:
		compare, swap = math.MaxUint64, math.MaxUint64
	}
	if (old^a.CompareAdd)&compare&a.all() != 0 {
		return old, false
	}
	return (old&^swap | a.Swap&swap) & a.all(), true
}

// all returns the bits of a word.
func (a Atomic) all() uint64 { return math.MaxUint64 >> (64 - 8*a.Size) }

// recvAtomic handles the request of an atomic operation.
func (q *QP) recvAtomic(k *packet) {
	s := &q.resp
	h := wire.ParseAtomicETH(k.ext)
	a := Atomic{Op: ibv.WRFetchAdd, RKey: h.RKey, VA: h.VA, Size: 8, CompareAdd: h.SwapAdd}
	switch k.Opcode {
	case wire.CompareSwap, wire.MaskedCompareSwap:
		a.Op, a.CompareAdd, a.Swap = ibv.WRCmpSwap, h.Compare, h.SwapAdd
	}
	if k.layout&wire.HasMaskETH != 0 {
		m := wire.ParseMaskETH(k.ext[wire.AtomicETHLen:])
		a.Op, a.Size, a.CompareMask, a.SwapMask = maskedOps[k.Opcode], int(m.Size), m.Compare, m.Swap
	}
	if s.kind != idle || a.Size != 4 && a.Size != 8 || h.VA%uint64(a.Size) != 0 {
		q.refuse(NAKInvalidRequest, fmt.Errorf("%v of %d bytes at %#x, PSN %#x: another size than 4 or 8, not on a multiple of it, or within another message", k.Opcode, a.Size, h.VA, k.PSN))
		return
	}
	if !q.permits(k, a.Op) {
		return
	}
	e := q.resource(k)
	if e == nil {
		return
	}
	*e = resource{kind: k.Opcode, first: k.PSN, count: 1, end: 1, rkey: h.RKey, va: h.VA}
	q.count(func(n *counters) { n.AtomicRequests.Add(1) })
	orig, nak := q.h.Atomic(a)
	if nak != NAKNone {
		*e = resource{}
		q.refuse(nak, fmt.Errorf("%v at %#x with key %#x: %w", k.Opcode, h.VA, h.RKey, nak.Err()))
		return
	}
	e.orig = orig
	e.pending = true
	s.open++
	s.msn++
	s.expectAfter(1)
	s.done = k.PSN
}

var maskedOps = map[wire.Opcode]ibv.WROp{wire.MaskedCompareSwap: ibv.WRMaskedCmpSwap, wire.MaskedFetchAdd: ibv.WRMaskedFetchAdd}

// putAtomic adds an atomic request with PSN psn to b.
func (q *endpoint) putAtomic(b *builder, w *Work, psn uint32) bool {
	op := atomicOps[w.Op].With(q.service)
	way := q.path()
	p, id := b.add(&way, op.HeaderLen()+wire.ICRCLen)
	if p == nil {
		return false
	}
	eth := wire.AtomicETH{VA: w.RemoteAddr, RKey: w.RKey, SwapAdd: w.Swap, Compare: w.CompareAdd}
	if w.Op == ibv.WRFetchAdd || w.Op == ibv.WRMaskedFetchAdd {
		eth.SwapAdd, eth.Compare = w.CompareAdd, 0
	}
	wire.PutBTH(p, &wire.BTH{
		Opcode: op, MigReq: true, PKey: wire.DefaultPKey,
		DestQP: q.recv.DestQPN, PSN: psn, AckReq: true,
	})
	ext := q.putXRCETH(p[wire.BTHLen:], w)
	wire.PutAtomicETH(ext, &eth)
	if w.Op.Masked() {
		wire.PutMaskETH(ext[wire.AtomicETHLen:], &wire.MaskETH{Size: uint8(w.Length), Compare: w.CompareMask, Swap: w.SwapMask})
	}
	q.finish(p, id)
	return true
}

var atomicOps = map[ibv.WROp]wire.Opcode{
	ibv.WRCmpSwap: wire.CompareSwap, ibv.WRFetchAdd: wire.FetchAdd,
	ibv.WRMaskedCmpSwap: wire.MaskedCompareSwap, ibv.WRMaskedFetchAdd: wire.MaskedFetchAdd,
}
