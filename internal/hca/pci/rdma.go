package pci

import (
	"net/netip"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/roce/inproc"
)

// rdmaState is the RDMA adapter behind the function, from ENABLE_HCA to TEARDOWN_HCA.
type rdmaState struct {
	dev *adapter.Device
	ctx *adapter.Context
}

// placeholder is the address of the adapter. Its queue pairs reach nobody yet: RDMA packets
// do not go through the port.
var placeholder = netip.MustParseAddr("192.0.2.1")

// open opens the adapter.
func (r *rdmaState) open(f *firmware) error {
	conn, err := inproc.NewNetwork(nil).Listen(netip.AddrPortFrom(placeholder, roce.UDPPort))
	if err != nil {
		return err
	}
	if r.dev, err = adapter.Open(adapter.Config{Addr: placeholder, Conn: conn}); err != nil {
		return err
	}
	r.ctx = r.dev.NewGuest(f.dev.mem, events{f})
	return nil
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
func (e events) Completion(cq *adapter.CQ) { e.f.eqs.completion(cq.EQN(), cq.Number()) }

// Async implements adapter.Events.
func (e events) Async(t adapter.EventType, obj any) {}

var _ = register(map[prm.Command]handler{
	0x200: (*firmware).createMKey,
	0x202: (*firmware).destroyMKey,
})

// adapterCommand executes a command that is the adapter's.
func (f *firmware) adapterCommand(c *call) error {
	out, err := f.rdma.ctx.Exec(uint16(c.in32(0x10, 16)), c.in, len(c.out))
	if err != nil {
		return &adapterError{answer: out, err: err}
	}
	c.out = out
	return nil
}

// adapterError is a command that the adapter has refused, with its answer.
type adapterError struct {
	answer []byte
	err    error
}

func (e *adapterError) Error() string { return e.err.Error() }
func (e *adapterError) Unwrap() error { return e.err }

// armCQ takes a write to the register where CQs are armed.
func (f *firmware) armCQ(cqn, word uint32) {
	if ctx := f.context(); ctx != nil {
		ctx.ArmCQ(cqn, word)
	}
}

// ringSend takes a write to a register where queues are rung.
func (f *firmware) ringSend(number uint32) {
	// A queue pair may have the number of a send queue. To ring a queue without requests
	// does nothing.
	if port := f.ethernet(); port != nil {
		port.Ring(number)
	}
	if ctx := f.context(); ctx != nil {
		ctx.RingQP(number)
	}
}

// withCQ makes a queue of the Ethernet port that completes to the CQ that a command names.
func (f *firmware) withCQ(users map[uint32]*adapter.CQ, c *call, create func(ether.CQ) (uint32, error)) error {
	number := c.in32(ctxIn+0x48, 24)
	cq := f.rdma.ctx.CQ(number)
	if cq == nil {
		return operr.New("find", syscall.ENOENT, "CQ %#x does not exist", number)
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

// physicalKey is a memory key for physical addresses.
type physicalKey struct{ tag uint8 }

func (f *firmware) createMKey(c *call) error {
	const mkc = 0x80
	mode := c.in32(mkc+0x03, 3)<<2 | c.in32(mkc+0x16, 2)
	if mode != 0 || !c.flag(mkc+0x60) {
		return f.adapterCommand(c)
	}
	f.keyMu.Lock()
	defer f.keyMu.Unlock()
	n, err := f.keys.add(physicalKey{tag: uint8(c.in32(mkc+0x38, 8))})
	return c.created(n, err)
}

func (f *firmware) destroyMKey(c *call) error {
	f.keyMu.Lock()
	_, err := f.keys.remove(c.number())
	f.keyMu.Unlock()
	if err == nil {
		return nil
	}
	return f.adapterCommand(c)
}

// resolve returns the physical address of memory that a queue of the Ethernet port names.
func (f *firmware) resolve(lkey uint32, addr, n uint64) (uint64, error) {
	f.keyMu.RLock()
	defer f.keyMu.RUnlock()
	if k, ok := f.keys.objects[lkey>>8]; !ok || k.tag != uint8(lkey) {
		return 0, operr.New("Ethernet port", syscall.EACCES, "key %#x is not for physical addresses", lkey)
	}
	return addr, nil
}
