package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/framenet"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/rdma"
)

// rdmaState is the RDMA adapter behind the function, from ENABLE_HCA to TEARDOWN_HCA.
type rdmaState struct {
	net *framenet.Network
	dev *adapter.Device
	ctx *adapter.Context
}

// close destroys all objects and closes the adapter.
func (r *rdmaState) close() {
	if r.dev != nil {
		r.dev.Close()
	}
	*r = rdmaState{}
}

// events hands the events of the adapter's objects to the event queues.
type events struct{ f *firmware }

// Completion implements adapter.Events.
func (e events) Completion(cq *adapter.CQ) { e.f.eqs.completion(cq) }

// Async implements adapter.Events.
func (e events) Async(t rdma.EventType, obj any) {
	if entry, ok := adapter.AsyncEntry(t, obj); ok {
		e.f.eqs.event(entry.Type, 0, entry.Data[:])
	}
}

// adapterCommand executes a command that is the adapter's.
func (f *firmware) adapterCommand(c *call) error {
	out, err := f.rdma.ctx.Exec(c.UID, c.In, len(c.Out))
	if err != nil {
		return &adapterError{answer: out, err: err}
	}
	c.Out = out
	return nil
}

// adapterError is a command that the adapter has refused, with its answer.
type adapterError struct {
	answer []byte
	err    error
}

func (e *adapterError) Error() string { return e.err.Error() }
func (e *adapterError) Unwrap() error { return e.err }

// ring takes a write to a register where CQs are armed, or queues rung.
func (f *firmware) ring(register int, v uint64) {
	rdma, port := f.hardware()
	if rdma.ctx == nil {
		return
	}
	if register == prm.UARBlue {
		// A queue pair may have the number of a send queue. To ring a queue without requests
		// does nothing.
		port.Ring(uint32(v) >> 8)
	}
	rdma.ctx.Ring(register, v)
}

// withCQ makes a queue of the Ethernet port that completes to the CQ that a command names.
func (f *firmware) withCQ(users map[uint32]*adapter.CQ, c *call, create func(ether.CQ) (uint32, error)) error {
	number := c.in32(ctxIn+0x48, 24)
	cq := f.rdma.ctx.CQ(number)
	if cq == nil {
		return failure.New("find", syscall.ENOENT, "CQ %#x does not exist", number)
	}
	if err := cq.Use("create a queue", ethernetUser); err != nil {
		return err
	}
	n, err := create(cq)
	if err != nil {
		cq.Unuse(ethernetUser)
		return err
	}
	users[n] = cq
	return c.created(n, nil)
}

const ethernetUser = "Ethernet queue"

// releaseCQ lets go of the CQ of a queue that was destroyed.
func (f *firmware) releaseCQ(users map[uint32]*adapter.CQ, n uint32, err error) error {
	if cq := users[n]; err == nil && cq != nil {
		delete(users, n)
		cq.Unuse(ethernetUser)
	}
	return err
}

// physical returns the function with which the Ethernet port finds the physical address of
// memory that a queue names.
func physical(ctx *adapter.Context) func(lkey uint32, addr, n uint64) (uint64, error) {
	return func(lkey uint32, addr, n uint64) (uint64, error) {
		if !ctx.Physical(lkey) {
			return 0, failure.New("Ethernet port", syscall.EACCES, "key %#x is not for physical addresses", lkey)
		}
		return addr, nil
	}
}
