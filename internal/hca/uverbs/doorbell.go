//go:build linux

package uverbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/adapter"
)

// doorbell looks at the doorbells of a device's contexts, which are ordinary
// memory that the programs write to. It spins for a while after work. Then it
// sleeps until a hardware watchpoint wakes it; where there are none, it sleeps
// for short times that grow. It sleeps entirely while no queue pair can be rung.
type doorbell struct {
	registers func() []registers // of the programs; nil where they cannot be watched

	mu       sync.Mutex
	contexts []*adapter.Context // replaced, never changed

	event    int // eventfd that wakes the sleeper
	sleeping atomic.Bool
	ending   atomic.Bool
	ended    chan struct{}
	turn     sync.Mutex // held during a look at the contexts
}

const (
	// spinTime is how long the goroutine spins after work. Where programs spin
	// on every processor too, a long spin would make it wait for its next time
	// slice; a sleeper is put in front of them.
	spinTime   = 20 * time.Microsecond
	shortSleep = 50 * time.Microsecond
	longSleep  = time.Millisecond
	// watchedSleep is how long it sleeps under watchpoints at most: a thread that
	// was started meanwhile has none.
	watchedSleep = 10 * time.Millisecond
	// rushes is how many times in a row the spin must have found work for the
	// watchpoints to be disabled: each store costs the program a trap.
	rushes = 16
	// scanEvery is how many looks at hints pass between two looks at every record.
	scanEvery = 64
)

func newDoorbell(registers func() []registers) (*doorbell, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	b := &doorbell{registers: registers, event: event, ended: make(chan struct{})}
	go b.run()
	return b, nil
}

// wake makes the doorbell look again. It does not block.
func (b *doorbell) wake(*adapter.Context) {
	if b.sleeping.Load() {
		b.signal()
	}
}

func (b *doorbell) signal() {
	unix.Write(b.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (b *doorbell) add(ctx *adapter.Context) {
	b.mu.Lock()
	b.contexts = append(append([]*adapter.Context(nil), b.contexts...), ctx)
	b.mu.Unlock()
	b.wake(nil)
}

// remove forgets a context; nothing looks at it any more when it returns.
func (b *doorbell) remove(ctx *adapter.Context) {
	b.turn.Lock() // waits for a look that began before
	defer b.turn.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []*adapter.Context
	for _, c := range b.contexts {
		if c != ctx {
			left = append(left, c)
		}
	}
	b.contexts = left
}

func (b *doorbell) close() {
	b.ending.Store(true)
	b.signal()
	<-b.ended
	unix.Close(b.event)
}

// look polls every context, or also looks at every record, and reports whether
// one had work, and whether one may be rung.
func (b *doorbell) look(scan bool) (worked, busy bool) {
	b.turn.Lock()
	defer b.turn.Unlock()
	b.mu.Lock()
	contexts := b.contexts
	b.mu.Unlock()
	for _, c := range contexts {
		if c.Poll() {
			worked = true
		}
		if scan && c.Scan() {
			worked = true
		}
		busy = busy || c.Busy()
	}
	return worked, busy
}

func (b *doorbell) run() {
	defer close(b.ended)
	runtime.LockOSThread() // the sleep is a system call
	defer runtime.UnlockOSThread()
	var w watcher
	defer w.close()
	sleep := shortSleep
	found := 0 // spins in a row that found work
	for n := 1; !b.ending.Load(); n++ {
		worked, busy := b.spin(n)
		if worked {
			sleep = shortSleep
			if found++; found >= rushes {
				w.disarm()
			}
			continue
		}
		found = 0
		// From here on a wake is a signal. What came before is found by the look
		// below, after the watchpoints are enabled.
		b.sleeping.Store(true)
		watched := busy && b.registers != nil && w.arm(b.registers())
		worked, busy = b.look(true)
		if !worked && !b.ending.Load() {
			switch {
			case watched:
				b.sleep(&w, watchedSleep)
			case busy:
				b.sleep(nil, sleep)
				sleep = min(2*sleep, longSleep)
			default:
				w.disarm()
				b.sleep(nil, -1)
				sleep = shortSleep
			}
		}
		b.sleeping.Store(false)
	}
}

// spin looks at the hints until one shows work or spinTime is over.
func (b *doorbell) spin(n int) (worked, busy bool) {
	began := time.Now()
	for i := 0; ; i++ {
		worked, busy = b.look((n+i)%scanEvery == 0)
		if worked || !busy || time.Since(began) > spinTime {
			return worked, busy
		}
	}
}

// sleep waits for a signal, a store under a watchpoint or the end of a time,
// which is unbounded if it is negative.
func (b *doorbell) sleep(w *watcher, d time.Duration) {
	fds := []unix.PollFd{{Fd: int32(b.event), Events: unix.POLLIN}}
	if w != nil {
		for _, p := range w.points {
			fds = append(fds, unix.PollFd{Fd: int32(p.fd), Events: unix.POLLIN})
		}
	}
	var ts *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		ts = &t
	}
	unix.Ppoll(fds, ts, nil)
	var count [8]byte
	unix.Read(b.event, count[:])
	if w != nil {
		for _, p := range w.points {
			p.drain()
		}
	}
}
