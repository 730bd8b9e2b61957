//go:build linux

package pump

import (
	"sync"
	"time"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
)

// Context is a set of queues with their doorbells: *adapter.Context. Its values are comparable.
type Context interface {
	// Poll handles the doorbells that a register hints at, Scan every doorbell. They report
	// whether there was work, or is some left for the next call. One goroutine at a time calls them.
	Poll() bool
	Scan() bool
	// Busy reports whether doorbells may come.
	Busy() bool
	// Isolate prepares the context for a thread of its own.
	Isolate()
	// Late is told when the thread ran later than it meant to, by more than tooLate: the program's requests,
	// packets and timeouts waited for a processor.
	Late(by time.Duration)
}

// Registers are the doorbell registers of one process.
type Registers struct {
	Pid   int      // 0: the processes that ring them are not known
	Addrs []uint64 // in the process
}

// Pump moves one device. Its methods may be called at any time by any goroutine, except that
// Start is called once and first, and no other method is called after Close.
type Pump struct {
	shared *loop
	own    sync.Map // Context to its *loop, for the contexts that have one
}

// New returns a pump that does not run yet. page is that of its helpers; nil: it has none.
func New(page *assist.Page) (*Pump, error) {
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	if page != nil {
		l.helpers = newHelpers(l, page)
	}
	return &Pump{shared: l}, nil
}

// Help starts the helpers, if they do not run yet: a program uses their page. It reports whether they can help:
// only the pump that takes the packets has helpers.
func (p *Pump) Help() bool {
	l := p.shared
	if l.helpers == nil || l.port == nil {
		return false
	}
	l.helpers.start()
	return true
}

// Start starts the thread. It takes over the packets of port if conn, the port's network, is a
// socket that can be polled.
func (p *Pump) Start(port *roce.Port, conn packetconn.Conn) { p.shared.start(port, conn) }

// Add makes the pump look at a context. registers returns the registers that its program rings
// at the moment of the call; nil: they cannot be watched.
func (p *Pump) Add(ctx Context, registers func() Registers) {
	p.shared.add(member{ctx, registers})
}

// Isolate gives a context that was added a thread of its own, because copies of its program's
// memory may wait. A second call does nothing. If the system has no descriptor for another thread,
// the shared one goes on with the context.
func (p *Pump) Isolate(ctx Context) error {
	if _, done := p.own.Load(ctx); done {
		return nil
	}
	l, err := newLoop()
	if err != nil {
		return err
	}
	ctx.Isolate()
	m := p.shared.remove(ctx)
	p.own.Store(ctx, l)
	l.start(nil, nil)
	l.add(m)
	return nil
}

// Remove removes a context. When it returns, no thread uses the context or watches its registers
// for it any more.
func (p *Pump) Remove(ctx Context) {
	l, own := p.own.LoadAndDelete(ctx)
	if !own {
		p.shared.remove(ctx)
		return
	}
	l.(*loop).remove(ctx)
	l.(*loop).close()
}

// Wake makes the pump look at a context again. It does not block.
func (p *Pump) Wake(ctx Context) {
	if l, own := p.own.Load(ctx); own {
		l.(*loop).wake()
		return
	}
	p.shared.wake()
}

// Asleep reports whether the shared thread sleeps until it is woken, or is about to.
func (p *Pump) Asleep() bool { return p.shared.sleeping.Load() }

// Close ends the thread. Contexts that are isolated are removed before.
func (p *Pump) Close() { p.shared.close() }
