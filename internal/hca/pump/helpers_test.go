//go:build linux

package pump

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

// newHelped returns a pump whose helpers run, and their page.
func newHelped(t *testing.T) (*Pump, *assist.Page) {
	t.Helper()
	page, err := assist.New()
	fatal.If(t, err)
	t.Cleanup(page.Close)
	p, err := New(page)
	fatal.If(t, err)
	p.Start(nil, nil)
	t.Cleanup(p.Close)
	p.shared.helpers.start()
	return p, page
}

// Doorbells are found, by whom it may be: of programs that kick, of programs that do not, while somebody kicks
// without end and somebody begins streams without end. A context that was removed is never looked at again.
func TestHelpers(t *testing.T) {
	p, page := newHelped(t)
	var ending atomic.Bool
	var wg sync.WaitGroup
	hostile := func(f func()) {
		wg.Go(func() {
			for !ending.Load() {
				f()
				runtime.Gosched()
			}
		})
	}
	hostile(func() {
		for cpu := range assist.Processors {
			page.Kick(cpu)
		}
	})
	hostile(func() {
		page.TellStream()
		time.Sleep(time.Millisecond)
	})
	for _, kicks := range []bool{true, false} {
		wg.Go(func() {
			c := newBell()
			p.Add(c, c.registers)
			for n := uint64(1); n <= 300; n++ {
				atomic.StoreUint64(&c.words[0], n)
				for deadline := time.Now().Add(patience); c.seen.Load() < n; runtime.Gosched() {
					if time.Now().After(deadline) {
						t.Errorf("request %d is not found; the program kicks: %t", n, kicks)
						return
					}
					if kicks {
						page.Kick(assist.Processor())
					}
				}
			}
			p.Remove(c)
			c.removed.Store(true)
			time.Sleep(time.Millisecond)
			if c.late.Load() {
				t.Error("a helper uses a context that was removed")
			}
		})
	}
	for range 20 { // contexts come and go
		c := newBell()
		p.Add(c, nil)
		time.Sleep(time.Millisecond)
		p.Remove(c)
		c.removed.Store(true)
		if c.late.Load() {
			t.Error("a helper uses a context that was removed")
		}
	}
	time.AfterFunc(500*time.Millisecond, func() { ending.Store(true) })
	wg.Wait()
}

// Helpers end when their pump is closed, whether they sleep or not, and whatever programs do with the threads that wait
// for words of the page. GOMAXPROCS is what it was before.
func TestHelpersEnd(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for _, hostile := range []bool{false, true} {
		for _, idle := range []time.Duration{0, time.Millisecond, 2 * busyWait} {
			page, err := assist.New()
			fatal.If(t, err)
			p, err := New(page)
			fatal.If(t, err)
			p.Start(nil, nil)
			p.shared.helpers.start()
			page.Kick(assist.Processor())
			moved := func() {}
			if hostile {
				moved = moveWaiters(t, page)
			}
			time.Sleep(idle)
			closed := make(chan struct{})
			go func() {
				p.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(patience):
				t.Fatalf("the pump does not close; waiters are moved: %t", hostile)
			}
			moved()
			page.Close()
		}
	}
	if n := runtime.GOMAXPROCS(0); n != before {
		t.Errorf("the Go scheduler has %d processors, %d before", n, before)
	}
}

// moveWaiters moves the threads that wait for words of a page to a word of its own, as a program can that maps the page
// for reading, until its result is called.
func moveWaiters(t *testing.T, page *assist.Page) (end func()) {
	t.Helper()
	b, err := unix.Mmap(int(page.File().Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	fatal.If(t, err)
	const requeue = 3 // FUTEX_REQUEUE
	var own uint32
	var ending atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !ending.Load() {
			for at := 0; at < len(b); at += 4 {
				unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b[at])), requeue, 0, 1000, uintptr(unsafe.Pointer(&own)), 0)
			}
			runtime.Gosched()
		}
	})
	return func() {
		ending.Store(true)
		wg.Wait()
		unix.Munmap(b)
	}
}

// The stop of the world, which garbage collections need, comes past helpers that wait.
func TestHelpersStopped(t *testing.T) {
	_, page := newHelped(t)
	for range 50 {
		page.Kick(assist.Processor())
		runtime.GC()
	}
}
