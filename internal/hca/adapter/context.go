package adapter

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/engine"
	"github.com/softmkey/softmkey/operr"
)

// Context is one user of a device.
type Context struct {
	dev    *Device
	number uint32
	mem    Memory
	events eventQueue
	deks   *dek.Context

	busy    atomic.Int32 // QPs that doorbells may come for
	polling sync.Mutex   // held by Poll and Scan
	plan    doorbellPlan // guarded by polling

	mu      sync.Mutex // guards the following fields
	closed  bool
	uars    map[*UAR]struct{}
	pds     map[uint32]*PD // by number
	mrs     map[*MR]struct{}
	mws     map[*MW]struct{}
	ahs     map[*AH]struct{}
	cqs     map[*CQ]struct{}
	qps     map[*QP]struct{}
	srqs    map[*SRQ]struct{}
	objects map[*DEVXObject]struct{}
	psvs    map[uint32]struct{}
	orphans []*dek.DEK // destroyed while memory keys used them
	stale   bool       // plan does not hold the queues of now
}

// NewContext makes a context of a program with that memory.
func (d *Device) NewContext(mem Memory, ev Events) *Context {
	c := &Context{
		dev: d, number: d.next.context.Add(1), mem: mem, deks: d.store.NewContext(),
		uars: map[*UAR]struct{}{}, pds: map[uint32]*PD{}, mrs: map[*MR]struct{}{}, mws: map[*MW]struct{}{}, ahs: map[*AH]struct{}{},
		cqs: map[*CQ]struct{}{}, qps: map[*QP]struct{}{}, srqs: map[*SRQ]struct{}{}, objects: map[*DEVXObject]struct{}{}, psvs: map[uint32]struct{}{},
	}
	c.events.start(ev)
	d.mu.Lock()
	d.contexts[c] = struct{}{}
	d.mu.Unlock()
	return c
}

// Number returns a number that distinguishes contexts in traces.
func (c *Context) Number() uint32 { return c.number }

// Device returns the context's device.
func (c *Context) Device() *Device { return c.dev }

// Close destroys every object of the context and waits until nothing touches its
// memory any more. Further calls do nothing. An error names the objects that could not be
// destroyed, because another context uses them; they stay until the device is closed.
func (c *Context) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	var errs []error
	// Close users before the objects that they use.
	for _, q := range snapshotKeys(c, c.qps) {
		errs = append(errs, q.destroy())
	}
	errs = append(errs, closeAll(c, c.srqs), closeAll(c, c.cqs), closeAll(c, c.objects))
	c.closeOrphans()
	errs = append(errs, closeAll(c, c.mws), closeAll(c, c.mrs), closeAll(c, c.ahs))
	for _, pd := range snapshotValues(c, c.pds) {
		errs = append(errs, pd.Close())
	}
	errs = append(errs, closeAll(c, c.uars))
	c.deks.Close()
	c.events.stop()
	c.dev.mu.Lock()
	delete(c.dev.contexts, c)
	c.dev.mu.Unlock()
	return errors.Join(errs...)
}

type closer interface {
	comparable
	Close() error
}

// closeAll closes the objects of a set; Close removes each from it. Objects that others
// of the set use are busy until those are closed: a round that closes none is the last.
func closeAll[T closer](c *Context, set map[T]struct{}) error {
	for before := -1; ; {
		all := snapshotKeys(c, set)
		if len(all) == 0 {
			return nil
		}
		var errs []error
		for _, x := range all {
			if err := x.Close(); err != nil {
				errs = append(errs, err)
			}
		}
		if len(all) == before {
			return errors.Join(errs...)
		}
		before = len(all)
	}
}

func snapshotKeys[T comparable](c *Context, set map[T]struct{}) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]T, 0, len(set))
	for x := range set {
		all = append(all, x)
	}
	return all
}

func snapshotValues[K comparable, V any](c *Context, m map[K]V) []V {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]V, 0, len(m))
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// enter adds an object to a set of the context.
func enter[T comparable](c *Context, op string, set map[T]struct{}, x T) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return operr.New(op, syscall.EINVAL, "the context was closed")
	}
	set[x] = struct{}{}
	c.stale = true
	return nil
}

// leave takes an object out of a set of the context and reports whether it was in it.
func leave[T comparable](c *Context, set map[T]struct{}, x T) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := set[x]
	delete(set, x)
	c.stale = true
	return was
}

// memory returns the memory that an object was made with: the context's by default.
func (c *Context) memory(m Memory) Memory {
	if m != nil {
		return m
	}
	return c.mem
}

// Clock returns the counter of [Device.Clock].
func (c *Context) Clock() uint64 { return c.dev.Clock() }

// PD is a protection domain.
type PD struct {
	ctx    *Context
	number uint32
	eng    *engine.PD
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	const op = "allocate a PD"
	e, err := c.dev.eng.NewPD()
	if err != nil {
		return nil, err
	}
	pd := &PD{ctx: c, number: c.dev.next.pd.Add(1), eng: e}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.pds[pd.number] = pd
	}
	c.mu.Unlock()
	if closed {
		e.Close()
		return nil, operr.New(op, syscall.EINVAL, "the context was closed")
	}
	c.trace(TraceObject, "pd", pd.number, "create", nil)
	return pd, nil
}

// pd returns the context's PD with a number, or nil.
func (c *Context) pd(number uint32) *PD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pds[number]
}

// Number returns the PD's number.
func (p *PD) Number() uint32 { return p.number }

// Close frees the PD. EBUSY: something uses it.
func (p *PD) Close() error {
	if err := p.eng.Close(); err != nil {
		return err
	}
	p.ctx.mu.Lock()
	delete(p.ctx.pds, p.number)
	p.ctx.mu.Unlock()
	p.ctx.trace(TraceObject, "pd", p.number, "destroy", nil)
	return nil
}

// AH is the address of datagrams. The driver puts it into each request.
type AH struct {
	ctx  *Context
	pd   *PD
	dmac [6]byte
}

// CreateAH makes an address.
func (c *Context) CreateAH(pd *PD, a AHAttr) (*AH, error) {
	const op = "create an address"
	to, err := c.dev.address(op, a)
	if err != nil {
		c.refused("ah", 0, "create", err)
		return nil, err
	}
	if err := pd.eng.Users().Enter(op, "AH"); err != nil {
		return nil, err
	}
	ah := &AH{ctx: c, pd: pd, dmac: macOf(to.DGID.Addr())}
	if err := enter(c, op, c.ahs, ah); err != nil {
		pd.eng.Users().Leave("AH")
		return nil, err
	}
	return ah, nil
}

// DMAC returns the MAC address that the driver puts into datagrams' requests.
func (a *AH) DMAC() [6]byte { return a.dmac }

// Close frees the address. Further calls do nothing.
func (a *AH) Close() error {
	if leave(a.ctx, a.ctx.ahs, a) {
		a.pd.eng.Users().Leave("AH")
	}
	return nil
}
