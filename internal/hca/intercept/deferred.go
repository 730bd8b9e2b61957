//go:build linux && (amd64 || arm64)

package intercept

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// deferred holds the calls that wait, for example for an event. The kernel does not
// interrupt them for a signal, so a goroutine checks periodically whether a signal is
// pending for their threads.
type deferred struct {
	mu     sync.Mutex
	calls  map[*Call]func()
	added  chan struct{} // capacity 1
	ending chan struct{}
}

// signalPeriod is the time between two checks for signals to threads whose calls wait.
const signalPeriod = 50 * time.Millisecond

// Defer lets the calling thread wait for an answer that comes later. interrupted is
// called once if the thread is killed or has a signal to handle before the answer.
// It answers with EINTR, or not at all if the answer is under way. A call that is
// answered already is not deferred.
func (c *Call) Defer(interrupted func()) {
	if c.answered.Load() {
		return
	}
	d := &c.s.waiting
	d.mu.Lock()
	if d.calls == nil {
		d.calls = map[*Call]func(){}
	}
	d.calls[c] = interrupted
	d.mu.Unlock()
	select {
	case d.added <- struct{}{}:
	default:
	}
}

func (d *deferred) close() { close(d.ending) }

// watch checks the deferred calls for signals, every signalPeriod while there are any.
func (d *deferred) watch() {
	tick := time.NewTimer(signalPeriod)
	defer tick.Stop()
	for {
		select {
		case <-d.ending:
			return
		case <-d.added:
		}
		for d.look() {
			tick.Reset(signalPeriod)
			select {
			case <-d.ending:
				return
			case <-tick.C:
			}
		}
	}
}

// look interrupts the calls whose threads were killed or have a signal to handle, and
// reports whether other calls wait.
func (d *deferred) look() bool {
	d.mu.Lock()
	var interrupted []func()
	for c, f := range d.calls {
		switch {
		case c.answered.Load():
			delete(d.calls, c)
		case !c.Alive() || signalled(c.Thread()):
			delete(d.calls, c)
			interrupted = append(interrupted, f)
		}
	}
	more := len(d.calls) > 0
	d.mu.Unlock()
	for _, f := range interrupted {
		f()
	}
	return more
}

// errRestart is ERESTARTSYS of the kernel: the call is made once more after the handler if the handler
// was set with SA_RESTART, and returns EINTR otherwise.
const errRestart = unix.Errno(512)

// Interrupt answers a call that a signal ends.
func (c *Call) Interrupt() {
	if gets(c.Thread()) {
		c.Fail(errRestart)
	} else {
		c.Fail(unix.EINTR)
	}
}

// gets reports whether the thread is sure to handle a pending signal when its call returns. Only then
// does the kernel look at errRestart: another thread of the process may take a signal that was sent to
// the process. The kernel gives it to the first thread if that does not block it.
func gets(thread int) bool {
	own, shared, sole := pending(thread)
	if own || !shared || sole {
		return own || shared
	}
	if processOf(thread) != thread {
		return false
	}
	// A timer's signal goes to the thread that runs, which takes it at once.
	time.Sleep(time.Millisecond)
	own, shared, _ = pending(thread)
	return own || shared
}

func newDeferred() deferred {
	return deferred{added: make(chan struct{}, 1), ending: make(chan struct{})}
}
