//go:build linux

package pump

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// patience is how long a test waits for an event.
const patience = 20 * time.Second

// bell is a context with one doorbell, which a thread of the test's process rings.
type bell struct {
	words    *[2]uint64 // the register, and the record that it hints at
	seen     atomic.Uint64
	polls    atomic.Uint64
	isolated atomic.Bool
	removed  atomic.Bool  // the context was removed: a call is a fault
	late     atomic.Bool  // a call came after the removal
	behind   atomic.Int64 // sum of the calls of Late
}

func newBell() *bell { return &bell{words: new([2]uint64)} }

func (c *bell) registers() Registers {
	return Registers{os.Getpid(), []uint64{uint64(uintptr(unsafe.Pointer(&c.words[0])))}}
}

func (c *bell) find(word int) bool {
	if c.polls.Add(1); c.removed.Load() {
		c.late.Store(true)
	}
	v := atomic.LoadUint64(&c.words[word])
	return c.seen.Swap(max(v, c.seen.Load())) < v
}

func (c *bell) Poll() bool            { return c.find(0) }
func (c *bell) Scan() bool            { return c.find(1) }
func (c *bell) Busy() bool            { return true }
func (c *bell) Isolate()              { c.isolated.Store(true) }
func (c *bell) Late(by time.Duration) { c.behind.Add(int64(by)) }

// ring posts request n, with a store to the register if hint is set, and waits until it is found.
func (c *bell) ring(t *testing.T, n uint64, hint bool) {
	t.Helper()
	atomic.StoreUint64(&c.words[1], n)
	if hint {
		atomic.StoreUint64(&c.words[0], n)
	}
	for deadline := time.Now().Add(patience); c.seen.Load() < n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("request %d is not found", n)
		}
	}
}

func newPump(t *testing.T) *Pump {
	t.Helper()
	p, err := New(nil)
	fatal.If(t, err)
	p.Start(nil, nil)
	t.Cleanup(p.Close)
	return p
}

// A signal that comes while the goroutine naps ends that nap, and not the next ones, too.
func TestNapTakesSignals(t *testing.T) {
	l, err := newLoop()
	fatal.If(t, err)
	defer l.close()
	l.signal()
	l.nap(time.Hour)
	fds := []unix.PollFd{{Fd: int32(l.event), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		t.Errorf("after the nap, the signal is still there (%v): each nap would end at once", err)
	}
}

// asleep waits until the pump's shared thread sleeps.
func asleep(t *testing.T, p *Pump) {
	t.Helper()
	for deadline := time.Now().Add(patience); !p.Asleep(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the pump does not sleep")
		}
	}
}

// TestPump rings doorbells of contexts that are watched, polled, and alone on a thread.
func TestPump(t *testing.T) {
	for _, v := range []struct {
		name                     string
		watched, isolated, hints bool
	}{
		{"watched", true, false, true}, {"watched, no hint", true, false, false},
		{"polled", false, false, true}, {"polled, no hint", false, false, false},
		{"alone", true, true, true}, {"alone, polled, no hint", false, true, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := newPump(t)
			asleep(t, p) // without a timeout: there is no context
			c := newBell()
			registers := c.registers
			if !v.watched {
				registers = nil
			}
			p.Add(c, registers)
			if v.isolated {
				for range 2 {
					fatal.If(t, p.Isolate(c))
				}
			}
			if c.isolated.Load() != v.isolated {
				t.Errorf("the context is isolated: %t", c.isolated.Load())
			}
			for n := uint64(1); n <= 5; n++ {
				asleep(t, p)
				c.ring(t, n, v.hints)
			}
			p.Remove(c)
			c.removed.Store(true)
			p.Wake(c)
			asleep(t, p)
		})
	}
}

// TestRemove removes contexts of both kinds while the pump looks at them.
func TestRemove(t *testing.T) {
	p := newPump(t)
	var all sync.WaitGroup
	const programs, times = 4, 20
	removed := make(chan *bell, programs*times)
	for i := range programs {
		all.Go(func() {
			for n := range times {
				c := newBell()
				p.Add(c, nil)
				if (i+n)%2 == 0 {
					if err := p.Isolate(c); err != nil {
						t.Error(err)
					}
				}
				for deadline := time.Now().Add(patience); c.polls.Load() == 0; runtime.Gosched() {
					if time.Now().After(deadline) {
						t.Error("the context is not looked at")
						return
					}
				}
				p.Remove(c)
				c.removed.Store(true)
				removed <- c
			}
		})
	}
	all.Wait()
	close(removed)
	for c := range removed {
		if c.late.Load() {
			t.Error("a context is used after it was removed")
		}
	}
	if n := len(p.shared.members); n != 0 {
		t.Errorf("%d contexts are looked at after all were removed", n)
	}
}

// TestManyContexts rings one of a hundred contexts again and again: it is polled more often than the
// others, whose doorbells are found nevertheless.
func TestManyContexts(t *testing.T) {
	p := newPump(t)
	bells := make([]*bell, 100)
	for i := range bells {
		bells[i] = newBell()
		p.Add(bells[i], nil)
	}
	busy, other := bells[70], bells[30]
	busy.ring(t, 1, true)
	before, otherBefore := busy.polls.Load(), other.polls.Load()
	for n := uint64(2); n < 500; n++ {
		busy.ring(t, n, true)
	}
	if got, least := busy.polls.Load()-before, 2*(other.polls.Load()-otherBefore); got < least {
		t.Errorf("%d polls of the context with work, want at least %d, twice those of another one", got, least)
	}
	for i, c := range bells {
		c.ring(t, 1000, i%2 == 0)
		p.Remove(c)
		c.removed.Store(true)
	}
	for i, c := range bells {
		if c.late.Load() {
			t.Errorf("context %d was polled after its removal", i)
		}
	}
}

// TestTellsLateness gives a loop naps that ended late by little and by much: its contexts are told of the second.
func TestTellsLateness(t *testing.T) {
	c := newBell()
	l := &loop{event: -1, members: []member{{ctx: c}}}
	l.tell(tooLate - 1)
	if got := c.behind.Load(); got != 0 {
		t.Errorf("told of %v", time.Duration(got))
	}
	l.tell(4 * tooLate)
	if got := c.behind.Load(); got != int64(4*tooLate) {
		t.Errorf("told of %v", time.Duration(got))
	}
}
