package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

var _ = register(map[prm.Command]handler{
	prm.CmdCreateTIR:        (*firmware).createTIR,
	prm.CmdModifyTIR:        (*firmware).modifyTIR,
	prm.CmdDestroyTIR:       func(f *firmware, c *call) error { return f.port.DestroyTIR(c.number()) },
	prm.CmdCreateSQ:         (*firmware).createSQ,
	prm.CmdModifySQ:         modifyQueue((*ether.Port).ModifySQ),
	prm.CmdDestroySQ:        func(f *firmware, c *call) error { return f.releaseCQ(f.sqCQ, c.number(), f.port.DestroySQ(c.number())) },
	prm.CmdQuerySQ:          queryQueue((*ether.Port).SQState),
	prm.CmdCreateRQ:         (*firmware).createRQ,
	prm.CmdModifyRQ:         modifyQueue((*ether.Port).ModifyRQ),
	prm.CmdDestroyRQ:        func(f *firmware, c *call) error { return f.releaseCQ(f.rqCQ, c.number(), f.port.DestroyRQ(c.number())) },
	prm.CmdQueryRQ:          queryQueue((*ether.Port).RQState),
	prm.CmdCreateRQT:        (*firmware).createRQT,
	prm.CmdModifyRQT:        (*firmware).modifyRQT,
	prm.CmdDestroyRQT:       func(f *firmware, c *call) error { return f.port.DestroyRQT(c.number()) },
	prm.CmdSetFlowRoot:      received(func(f *firmware, c *call) error { return f.port.SetRoot(c.in32(flowTable, 24)) }),
	prm.CmdCreateFlowTable:  received((*firmware).createTable),
	prm.CmdDestroyFlowTable: func(f *firmware, c *call) error { return f.port.DestroyTable(c.in32(flowTable, 24)) },
	prm.CmdCreateFlowGroup:  received((*firmware).createGroup),
	prm.CmdDestroyFlowGroup: func(f *firmware, c *call) error { return f.port.DestroyGroup(c.in32(flowTable, 24), c.in32(0xc0, 32)) },
	prm.CmdSetFlowEntry:     received((*firmware).setEntry),
	prm.CmdDeleteFlowEntry:  func(f *firmware, c *call) error { return f.port.DeleteEntry(c.in32(flowTable, 24), c.in32(0x100, 32)) },
	prm.CmdModifyFlowTable:  received(func(f *firmware, c *call) error { return f.port.SetMiss(c.in32(flowTable, 24), c.miss()) }),
})

// Offsets in the commands of queues, in bits.
const (
	ctxIn  = 0x100 // of the context in a command
	ctxOut = 0x100 // of the context in an answer
)

// ring decodes a work queue.
func (c *call) ring() (ether.Ring, error) {
	q := prm.ParseWorkQueue(c.In)
	list := q.Pages()
	r := ether.Ring{Record: q.DBAddr, LogStride: uint(q.LogStride), LogSize: uint(q.LogSize), Shift: list.Shift, Offset: list.Offset}
	if q.Type != prm.WQCyclic {
		return r, failure.New("work queue", syscall.EOPNOTSUPP, "type %d: only cyclic queues (%d) are supported", q.Type, prm.WQCyclic)
	}
	if r.Shift > 31 || r.LogSize > ether.MaxLogSize {
		return r, failure.New("work queue", syscall.EINVAL, "2^%d entries in pages of 2^%d bytes", r.LogSize, r.Shift)
	}
	var err error
	r.Pages, err = c.pages(list)
	return r, err
}

func (f *firmware) createSQ(c *call) error {
	r, err := c.ring()
	if err != nil {
		return err
	}
	if lists := c.in32(ctxIn+0x100, 16); lists > 0 { // internal queues have no TIS
		if _, err := f.tiss.get(c.in32(ctxIn+0x168, 24)); err != nil {
			return err
		}
	}
	return f.withCQ(f.sqCQ, c, func(cq ether.CQ) (uint32, error) {
		return f.port.CreateSQ(ether.Queue{Ring: r, CQ: cq, Flush: c.in32(ctxIn+0x03, 1) != 0})
	})
}

func (f *firmware) createRQ(c *call) error {
	r, err := c.ring()
	if err != nil {
		return err
	}
	if typ := c.in32(ctxIn+0x04, 4); typ != 0 {
		return failure.New("CREATE_RQ", syscall.EOPNOTSUPP, "memory of type %d: only a queue of its own (0) is supported", typ)
	}
	return f.withCQ(f.rqCQ, c, func(cq ether.CQ) (uint32, error) {
		return f.port.CreateRQ(ether.Queue{Ring: r, CQ: cq, Flush: c.in32(ctxIn+0x0d, 1) != 0, CounterSet: uint8(c.in32(ctxIn+0x60, 8))})
	})
}

// modifyQueue returns the handler that changes the state of an SQ or RQ.
func modifyQueue(modify func(p *ether.Port, n uint32, from, to uint8) error) handler {
	return func(f *firmware, c *call) error {
		return modify(f.port, c.number(), uint8(c.in32(0x40, 4)), uint8(c.in32(ctxIn+0x08, 4)))
	}
}

// queryQueue returns the handler that answers the state of an SQ or RQ.
func queryQueue(stateOf func(p *ether.Port, n uint32) (uint8, error)) handler {
	return func(f *firmware, c *call) error {
		state, err := stateOf(f.port, c.number())
		c.set(ctxOut+0x08, 4, uint64(state))
		return err
	}
}

// hashOf takes the hash of a TIR from a command.
func (c *call) hashOf(t *ether.TIR) error {
	t.Hash = ether.HashFunction(c.in32(ctxIn+0x120, 4))
	if t.Hash > ether.HashToeplitz {
		return failure.New("TIR", syscall.EOPNOTSUPP, "hash function %d: must be %d (none), %d (XOR) or %d (Toeplitz)", t.Hash, ether.HashNone, ether.HashXOR8, ether.HashToeplitz)
	}
	t.Symmetric = c.flag(ctxIn + 0x100)
	for i := range t.Key {
		t.Key[i] = byte(c.in32(ctxIn+0x140+8*i, 8))
	}
	t.Fields = c.in32(ctxIn+0x280, 32) & (1<<30 - 1)
	return nil
}

func (f *firmware) createTIR(c *call) error {
	t := ether.TIR{Direct: c.in32(ctxIn+0x20, 4) == 0, RQ: c.in32(ctxIn+0xe8, 24), RQT: c.in32(ctxIn+0x108, 24), Own: c.flag(tirOwn)}
	if err := f.needDomain(c.in32(ctxIn+0x128, 24)); err != nil {
		return err
	}
	if typ := c.in32(ctxIn+0x20, 4); typ > 1 {
		return failure.New("CREATE_TIR", syscall.EINVAL, "dispatch type %d: must be 0 (direct) or 1 (by a table)", typ)
	}
	if err := c.hashOf(&t); err != nil {
		return err
	}
	return c.created(f.port.CreateTIR(t))
}

// Fields of MODIFY_TIR.
const (
	tirHash   = 1 << 2
	tirSelfLB = 1 << 4
)

// tirOwn is the place of the bit that lets a TIR take unicast frames of the port itself: the lower one of
// self_lb_block. The bit above it, for multicast, has no effect: such frames are not looped back.
const tirOwn = ctxIn + 0x127

// modifyTIR changes the hash, and whether the TIR takes the port's own frames.
func (f *firmware) modifyTIR(c *call) error {
	mask := prm.Bits(c.In, 0x80, 64)
	if bad := mask &^ (tirHash | tirSelfLB); bad != 0 {
		return failure.New("MODIFY_TIR", syscall.EINVAL, "fields %#x: %#x are not supported", mask, bad)
	}
	var hash ether.TIR
	if mask&tirHash != 0 {
		if err := c.hashOf(&hash); err != nil {
			return err
		}
	}
	return f.port.ModifyTIR(c.number(), func(t *ether.TIR) {
		if mask&tirHash != 0 {
			t.Hash, t.Symmetric, t.Key, t.Fields = hash.Hash, hash.Symmetric, hash.Key, hash.Fields
		}
		if mask&tirSelfLB != 0 {
			t.Own = c.flag(tirOwn)
		}
	})
}

// rqs decodes the list of an RQT.
func (c *call) rqs() (max int, rqs []uint32, err error) {
	const list = (ctxIn + 0x780) / 8
	max, n := int(c.in32(ctxIn+0xb0, 16)), int(c.in32(ctxIn+0xd0, 16))
	if n > ether.MaxRQTSize || len(c.In) < list+4*n {
		return 0, nil, failure.New("RQT", syscall.EINVAL, "%d queues in a command of %d bytes: at most %d", n, len(c.In), ether.MaxRQTSize)
	}
	for i := range n {
		rqs = append(rqs, be.Uint32(c.In[list+4*i:])&0xffffff)
	}
	return max, rqs, nil
}

func (f *firmware) createRQT(c *call) error {
	max, rqs, err := c.rqs()
	if err != nil {
		return err
	}
	return c.created(f.port.CreateRQT(max, rqs))
}

func (f *firmware) modifyRQT(c *call) error {
	_, rqs, err := c.rqs()
	if err != nil {
		return err
	}
	return f.port.ModifyRQT(c.number(), rqs)
}

// Offsets in the commands of flow tables, in bits.
const (
	flowType   = 0x80
	flowTable  = 0xa8
	flowCtx    = 0xc0  // of the table's context
	flowMatch  = 0x200 // of the criteria of a group, and of the context of an entry
	entryValue = flowMatch + 0x200
	entryList  = flowMatch + 0x1800

	flowReceive   = 0 // type of the tables of received frames
	matchOuter    = 1 << 0
	targetTable   = 1
	targetTIR     = 2
	missToTable   = 1
	anyOtherVPort = 0x40
)

// received returns the handler of a command on flow tables. It refuses those of other types than that of received frames.
func received(do handler) handler {
	return func(f *firmware, c *call) error {
		if typ := c.in32(flowType, 8); typ != flowReceive {
			return failure.New("flow table", syscall.EOPNOTSUPP, "type %d: only tables of received frames (%d) are supported", typ, flowReceive)
		}
		if c.flag(anyOtherVPort) {
			return failure.New("flow table", syscall.EOPNOTSUPP, "of another function")
		}
		return do(f, c)
	}
}

// miss returns the table for frames that no entry of a table matches; 0: none.
func (c *call) miss() uint32 {
	if c.in32(flowCtx+0x04, 4) == missToTable {
		return c.in32(flowCtx+0x28, 24)
	}
	return 0
}

func (f *firmware) createTable(c *call) error {
	size := c.in32(flowCtx+0x18, 8)
	if size > 16 {
		return failure.New("CREATE_FLOW_TABLE", syscall.EINVAL, "2^%d entries", size)
	}
	return c.created(f.port.CreateTable(ether.Table{Level: uint8(c.in32(flowCtx+0x08, 8)), Size: 1 << size, Miss: c.miss()}))
}

// outer copies the outer headers of match parameters, and refuses a mask that has more.
func (c *call) outer(at int, m *ether.Match) {
	if at < len(c.In) {
		copy(m[:], c.In[at:])
	}
}

func (f *firmware) createGroup(c *call) error {
	if enable := c.in32(0x1f8, 8); enable&^matchOuter != 0 {
		return failure.New("CREATE_FLOW_GROUP", syscall.EOPNOTSUPP, "criteria %#x: only those of the outer headers (%#x) are supported", enable, matchOuter)
	}
	g := ether.Group{First: c.in32(0xe0, 32), Last: c.in32(0x120, 32)}
	if c.in32(0x1f8, 8)&matchOuter != 0 {
		c.outer(flowMatch/8, &g.Mask)
	}
	return c.created(f.port.CreateGroup(c.in32(flowTable, 24), g))
}

func (f *firmware) setEntry(c *call) error {
	const op = "SET_FLOW_TABLE_ENTRY"
	e := ether.Entry{Index: c.in32(0x100, 32), Group: c.in32(flowMatch+0x20, 32), Action: uint16(c.in32(flowMatch+0x70, 16))}
	c.outer(entryValue/8, &e.Value)
	n := int(c.in32(flowMatch+0x88, 24))
	if n > 64 || len(c.In) < entryList/8+8*n {
		return failure.New(op, syscall.EINVAL, "%d targets in a command of %d bytes", n, len(c.In))
	}
	for i := range n {
		t := c.in32(entryList+64*i, 8)
		if t != targetTable && t != targetTIR {
			return failure.New(op, syscall.EOPNOTSUPP, "a target of type %d: must be a table (%d) or a TIR (%d)", t, targetTable, targetTIR)
		}
		e.Targets = append(e.Targets, ether.Target{Table: t == targetTable, ID: c.in32(entryList+64*i+8, 24)})
	}
	return f.port.SetEntry(c.in32(flowTable, 24), e)
}
