package pci

import (
	"errors"
	"maps"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// firmware executes the commands and holds the objects that they have made. DISABLE_HCA
// and a reset make a new firmware.
type firmware struct {
	dev *Device
	eqs eqTable

	// memic is the allocated device memory. BAR 0 reaches it without mu.
	memic *guestmem.Map

	mu       sync.Mutex // held while a command is executed; guards the following fields
	hca      hcaState
	vport    vport
	uars     table[*adapter.UAR]
	users    table[struct{}] // of the driver's commands: programs
	counters table[*counterSet]
	tiss     table[struct{}] // transport interfaces send (TIS), which send queues name: there is one port, without priorities
	memory   memoryQuota
	rdma     rdmaState
	port     *ether.Port
	sqCQ     map[uint32]*adapter.CQ // of the Ethernet port's queues
	rqCQ     map[uint32]*adapter.CQ
}

func newFirmware(d *Device) *firmware {
	f := &firmware{dev: d, memic: new(guestmem.Map)}
	f.eqs.init(d)
	f.clear()
	return f
}

// clear makes the state that the driver finds at ENABLE_HCA.
func (f *firmware) clear() {
	f.hca = newHCAState()
	f.vport = newVPort(f.dev.cfg.MAC)
	f.uars = newTable[*adapter.UAR]("UAR", barFirstUAR, barUARs-1)
	f.users = newTable[struct{}]("user", 1, 1<<8)
	f.counters = newTable[*counterSet]("counter set", 1, lastCounterSet)
	f.tiss = newTable[struct{}]("TIS", 1, 1<<16-1)
	f.memory = memoryQuota{objects: make(map[prm.Destruction]int64)}
	f.sqCQ, f.rqCQ = make(map[uint32]*adapter.CQ), make(map[uint32]*adapter.CQ)
}

// close destroys all objects. Nothing touches the guest's memory after it.
func (f *firmware) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.destroyAll()
	f.clear()
}

// destroyAll destroys the objects that touch the guest's memory and raise interrupts.
func (f *firmware) destroyAll() {
	if f.port != nil {
		f.port.Close()
		f.port = nil
	}
	f.rdma.close()
	f.eqs.close()
	f.memic.Clear()
}

// hardware returns the RDMA adapter and the Ethernet port. The adapter is empty, and the port nil, before ENABLE_HCA.
func (f *firmware) hardware() (rdmaState, *ether.Port) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rdma, f.port
}

// call is a command that is being executed.
type call struct {
	prm.Call
	after func() // called when the answer was delivered; may be nil
}

// in32 returns a field of the command, by its offset and width in bits.
func (c *call) in32(off, n int) uint32 { return uint32(prm.Bits(c.In, off, n)) }

// sharedUser is the user that Linux names when it makes an event queue for completions, which all
// users share.
const sharedUser = 0xffff

func (c *call) flag(off int) bool { return prm.Bits(c.In, off, 1) != 0 }

// set writes a field of the answer.
func (c *call) set(off, n int, v uint64) { prm.SetBits(c.Out, off, n, v) }

// number returns the number of the object that the command is about.
func (c *call) number() uint32 { return c.in32(0x48, 24) }

// created writes the number of a new object to the answer.
func (c *call) created(n uint32, err error) error {
	c.set(0x48, 24, uint64(n))
	return err
}

// handler executes a command. An error becomes the status of the answer.
type handler func(f *firmware, c *call) error

// handlers are the commands that the function executes itself. The adapter has the others.
var handlers = map[prm.Command]handler{}

// register adds handlers. Each file registers its own.
func register(more map[prm.Command]handler) struct{} {
	maps.Copy(handlers, more)
	return struct{}{}
}

// execute executes a command and returns its answer. after is called when the answer was
// delivered.
func (f *firmware) execute(in []byte, outLen, slot int) (out []byte, after func()) {
	c := &call{Call: prm.Call{In: in, Out: make([]byte, max(outLen, prm.CommandHeaderSize))}}
	c.Command, c.Mod = prm.OpcodeOf(in)
	if uid := uint16(c.in32(0x10, 16)); uid != sharedUser {
		c.UID = uid
	}
	err := f.run(c)
	if err != nil {
		c.Out = prm.Answer(len(c.Out), prm.StatusOfError(err), reasonSyndrome|uint32(c.Command))
		var refused *adapterError
		if errors.As(err, &refused) && refused.answer != nil {
			c.Out = refused.answer
		}
		c.after = nil
	}
	c.Out = c.Out[:outLen]
	f.traceCommand(c, slot, err)
	return c.Out, c.after
}

// reasonSyndrome distinguishes the syndromes of refused commands from those of adapters; the
// opcode stands in the low half. The reason in words is in the trace.
const reasonSyndrome = 0x50f7 << 16

func (f *firmware) run(c *call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	h, spec := handlers[c.Command], c.Command.Spec()
	if f.rdma.ctx == nil && !spec.Has(prm.Early) {
		return failure.New("command", syscall.EPERM, "%v: the function is not enabled", c.Command)
	}
	if c.UID != 0 {
		if _, err := f.users.get(uint32(c.UID)); err != nil {
			return err
		}
		if spec.Has(prm.ByDriver) && !spec.Has(prm.ByUser) {
			return failure.New("command", syscall.EPERM, "%v: only the driver may use it, and not user %#x", c.Command, c.UID)
		}
	}
	if ctx := c.Command.Context(); h != nil && ctx != nil {
		if why := ctx.Check(c.In, c.UID == 0); why != "" {
			return failure.New(c.Command.String(), syscall.EINVAL, "%s", why)
		}
	}
	if h == nil {
		h = (*firmware).adapterCommand
	}
	if err := f.memory.room(c); err != nil {
		return err
	}
	err := h(f, c)
	if err == nil {
		f.memory.note(c)
		f.countQP(c)
	}
	return err
}

// pages returns the addresses of the pages of a queue.
func (c *call) pages(list prm.PageList) ([]uint64, error) { return c.addresses(list.At, list.Count()) }

// addresses returns the addresses of n pages, which stand in the command from a byte on.
func (c *call) addresses(at int, n uint64) ([]uint64, error) {
	pages, ok := prm.Addresses(c.In, at, n)
	if !ok {
		return nil, failure.New("command", syscall.EMSGSIZE, "%v of %d bytes: %d page addresses from byte %#x do not fit", c.Command, len(c.In), n, at)
	}
	return pages, nil
}
