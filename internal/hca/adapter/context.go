package adapter

import (
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/device/engine"
)

// Context is one user of a device.
type Context struct {
	dev    *Device
	number uint32
	mem    Memory
	guest  bool // commands give the pages of queues, rather than addresses of a program
	events eventQueue
	deks   *dek.Context
	freed  freedNumbers

	memic      Memory       // on-chip memory (MEMIC) of a guest's device; see Device.NewGuest
	failed     failedQPs    // of a guest
	keyNumbers number.Range // of a guest's memory keys; nextKey allocates from it
	listBytes  atomic.Int64 // bytes of the scatter lists of a guest's memory keys
	addresses  atomic.Int64 // handles that the QPs keep
	lateness   lateness

	busy      atomic.Int32 // number of QPs in RTR or a later state, whose doorbells must be polled
	polling   sync.Mutex   // held by Poll and Scan, and for a guest by lookAtFailed
	plan      doorbellPlan // guarded by polling
	stale     atomic.Bool  // queues were made or destroyed since plan was built
	pages     []*UAR       // guarded by polling: the values of uars when rung last copied them
	staleUARs atomic.Bool  // uars has changed since rung copied it to pages
	ringing   []ringing    // guarded by polling: rung reuses it for its result
	order     rungQPs      // guarded by polling: scanInOrder reuses its slices

	mu       sync.Mutex // guards the following fields
	closed   bool
	isolated bool         // Isolate was called: each QP has a goroutine of its own
	ownPD    *PD          // by umrPD
	login    *loginObject // the last login that was valid
	orphans  []*dek.DEK   // destroyed while memory keys used them

	// The objects by their numbers, and regions, windows and memory keys by their indexes.
	uars       map[uint32]*UAR
	eqs        map[uint32]struct{}
	umems      map[uint32]*Umem
	pds        map[uint32]*PD
	domains    map[uint32]*domain
	xrcds      map[uint32]*XRCD // made by ALLOC_XRCD
	mrs        map[uint32]*MR
	mws        map[uint32]*MW
	ahs        map[uint32]*AH
	cqs        map[uint32]*CQ
	qps        map[uint32]*QP
	srqs       map[uint32]*SRQ
	mkeys      map[uint32]*mkeyObject
	psvs       map[uint32]*psv
	dekObjects map[uint32]*dekObject
	logins     map[uint32]*loginObject
}

// NewContext makes a context for a program. mem is the program's memory; ev receives its events.
func (d *Device) NewContext(mem Memory, ev Events) *Context {
	c := &Context{
		dev: d, number: d.next.context.Add(1), mem: mem, deks: d.store.NewContext(),
		uars: map[uint32]*UAR{}, eqs: map[uint32]struct{}{}, umems: map[uint32]*Umem{}, pds: map[uint32]*PD{}, domains: map[uint32]*domain{}, xrcds: map[uint32]*XRCD{}, mrs: map[uint32]*MR{}, mws: map[uint32]*MW{}, ahs: map[uint32]*AH{},
		cqs: map[uint32]*CQ{}, qps: map[uint32]*QP{}, srqs: map[uint32]*SRQ{}, mkeys: map[uint32]*mkeyObject{}, psvs: map[uint32]*psv{},
		dekObjects: map[uint32]*dekObject{}, logins: map[uint32]*loginObject{},
	}
	c.events.start(ev)
	d.mu.Lock()
	d.contexts[c] = struct{}{}
	d.mu.Unlock()
	return c
}

// Isolate gives each QP of the context a goroutine of its own, those that exist and those that are
// made later: copies of the program's memory may wait, and the QPs of other contexts must not wait
// with them. The caller does the same for Poll and Scan.
func (c *Context) Isolate() {
	c.mu.Lock()
	c.isolated = true
	c.mu.Unlock()
	for _, q := range snapshot(c, c.qps) {
		q.eng.Isolate()
	}
}

// lateness counts how often the thread that polls the context ran late, since the trace last had a record of that.
type lateness struct {
	mu    sync.Mutex // guards the following fields
	times int
	most  time.Duration
	told  time.Time
}

// Late records that the thread that moves the context ran later than it meant to, in at most one record a second.
func (c *Context) Late(by time.Duration) {
	l := &c.lateness
	l.mu.Lock()
	l.times++
	l.most = max(l.most, by)
	due := time.Since(l.told) >= time.Second
	l.mu.Unlock()
	if due {
		c.tellLate()
	}
}

// tellLate records how often, and by how much, the thread was late since the last such record.
func (c *Context) tellLate() {
	l := &c.lateness
	l.mu.Lock()
	times, most := l.times, l.most
	l.times, l.most, l.told = 0, 0, time.Now()
	l.mu.Unlock()
	if times == 0 || !c.tracing() {
		return
	}
	c.trace(TraceTransport, "context", c.number, "late",
		failure.New("run the device", syscall.EAGAIN, "its thread ran up to %.0f ms later than it meant to: the machine is busy, and requests, packets and timeouts waited", most.Seconds()*1e3),
		count("times", uint64(times)), count("longest_us", uint64(most.Microseconds())))
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
	for _, q := range snapshot(c, c.qps) {
		errs = append(errs, q.destroy())
	}
	errs = append(errs, closeAll(c, c.srqs), closeAll(c, c.cqs), closeAll(c, c.mkeys), closeAll(c, c.umems), closeAll(c, c.psvs), closeAll(c, c.dekObjects), closeAll(c, c.logins))
	c.closeOrphans()
	errs = append(errs, closeAll(c, c.mws), closeAll(c, c.mrs), closeAll(c, c.ahs), closeAll(c, c.pds), closeAll(c, c.domains), closeAll(c, c.uars))
	errs = append(errs, c.deks.Close())
	c.events.stop()
	c.tellLate()
	c.dev.mu.Lock()
	delete(c.dev.contexts, c)
	c.dev.mu.Unlock()
	return errors.Join(errs...)
}

// closeAll closes the objects of a table; Close removes each from the table. An object that
// others of the table use is busy until they are closed. The first round that closes none ends
// the loop.
func closeAll[T interface{ Close() error }](c *Context, table map[uint32]T) error {
	for before := -1; ; {
		all := snapshot(c, table)
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

func snapshot[T any](c *Context, table map[uint32]T) []T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(table))
}

// enter adds an object to a table of the context under its number, which newNumber gave. ENOMEM: it had none left,
// or a program has as many objects of the kind as the device announces.
func enter[T any](c *Context, op string, table map[uint32]T, n uint32, x T) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return failure.New(op, syscall.EINVAL, "the context was closed")
	case n == 0 || !c.guest && len(table) >= mostOf(x):
		return failure.New(op, syscall.ENOMEM, "there are %d such objects already", len(table))
	}
	table[n] = x
	return nil
}

// mostOf returns the largest number of objects of a kind in a program's context (max_pd, max_cq, max_srq and max_qp).
func mostOf(x any) int {
	switch x.(type) {
	case *PD, *CQ, *SRQ, *QP:
		return maxObjects
	}
	return math.MaxInt
}

// newNumber returns a number that no object of a table has, or 0 if all are used.
func newNumber[T any](c *Context, r *number.Range, table map[uint32]T) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return number.Next(r, table)
}

// leave takes an object out of a table of the context and reports whether it was in it.
func leave[T any](c *Context, table map[uint32]T, number uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := table[number]
	delete(table, number)
	return was
}

// CQ returns the context's CQ with a number, or nil.
func (c *Context) CQ(number uint32) *CQ { return lookup(c, c.cqs, number) }

// QP returns the context's QP with a number, or nil.
func (c *Context) QP(number uint32) *QP { return lookup(c, c.qps, number) }

// SRQ returns the context's SRQ or RMP with a number, or nil.
func (c *Context) SRQ(number uint32) *SRQ { return lookup(c, c.srqs, number) }

// lookup returns the object of a table with a number, or the zero value.
func lookup[T any](c *Context, table map[uint32]T, number uint32) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return table[number]
}

// object has the fields that most objects of a context have: protection domains, queues, registered memory. Memory keys
// have their number elsewhere.
type object struct {
	ctx    *Context // that made it
	number uint32
	uid    uint16 // of the user whose command made it; 0: a verb, or a kernel's command
}

// Number returns the object's number in commands.
func (o *object) Number() uint32 { return o.number }

func (o *object) owner() uint16 { return o.uid }

// PD is a protection domain.
type PD struct {
	object
	eng *engine.PD
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	const op = "allocate a PD"
	e, err := c.dev.eng.NewPD()
	if err != nil {
		return nil, err
	}
	pd := &PD{object: object{ctx: c, number: newNumber(c, &c.dev.next.pd, c.pds)}, eng: e}
	if err := enter(c, op, c.pds, pd.number, pd); err != nil {
		e.Close()
		return nil, err
	}
	c.trace(TraceObject, "pd", pd.number, "create", nil)
	return pd, nil
}

// Close frees the PD. EBUSY: something uses it.
func (p *PD) Close() error {
	if err := p.eng.Close(); err != nil {
		return err
	}
	leave(p.ctx, p.ctx.pds, p.number)
	p.ctx.freed.forget(p)
	p.ctx.trace(TraceObject, "pd", p.number, "destroy", nil)
	return nil
}

// AH is an address handle: the address to which datagrams are sent. The driver copies it into each send request.
type AH struct {
	object
	pd   *PD
	dmac [6]byte
}

// CreateAH makes an address.
func (c *Context) CreateAH(pd *PD, a AHAttr) (_ *AH, err error) {
	const op = "create an address"
	defer notCreated(c, "ah", &err)
	to, err := c.dev.address(op, a)
	if err != nil {
		return nil, err
	}
	if err := pd.eng.Users().Enter(op, "AH"); err != nil {
		return nil, err
	}
	ah := &AH{object: object{ctx: c, number: newNumber(c, &c.dev.next.ah, c.ahs)}, pd: pd, dmac: macOf(to.DGID.Addr())}
	if err := enter(c, op, c.ahs, ah.number, ah); err != nil {
		pd.eng.Users().Leave("AH")
		return nil, err
	}
	return ah, nil
}

// DMAC returns the destination MAC address, which the driver copies into the send requests of datagrams.
func (a *AH) DMAC() [6]byte { return a.dmac }

// Close frees the address handle. Further calls do nothing.
func (a *AH) Close() error {
	if leave(a.ctx, a.ctx.ahs, a.number) {
		a.pd.eng.Users().Leave("AH")
	}
	return nil
}

// AddEQ makes an event queue known by its number. Completion queues name one; events leave
// through [Events].
func (c *Context) AddEQ(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eqs[number] = struct{}{}
}
