//go:build linux && (amd64 || arm64)

package intercept

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A reader is a goroutine that takes notifications and answers them, most of them by itself: to
// wake another thread for a call costs several times as much as the call. One reader at a time
// leads, which means that it waits for notifications. Another one takes over the lead when a call
// says that it may take long (Call.MayTakeLong), or when it does take long.
type reader struct {
	// call is the number of the call that the leading reader executes, idle between calls, and
	// replaced once another reader leads.
	call atomic.Uint64
}

const (
	idle     = 0
	replaced = ^uint64(0)
)

// takeOver is how long the leading reader may be in a call. The others wait meanwhile.
const takeOver = time.Millisecond

// leader is the state of the lead.
type leader struct {
	reader atomic.Pointer[reader]
	ended  sync.WaitGroup // of the last leading reader
	calls  atomic.Uint64  // ever

	// watching is set while the timer watches the leading reader for calls that take long.
	watching atomic.Bool
	timer    *time.Timer
	seen     uint64 // the reader's call when the timer looked last
}

// lead starts the first reader.
func (s *Supervisor) lead() {
	l := &s.leader
	l.timer = time.AfterFunc(time.Hour, s.watchLeader)
	l.timer.Stop()
	l.ended.Add(1)
	s.listener.wakeHere()
	s.follow()
}

// follow starts the reader that leads from now on.
func (s *Supervisor) follow() {
	r := &reader{}
	s.leader.reader.Store(r)
	go s.read(r)
}

// replace lets another reader lead, if r is in the call of that number still.
func (s *Supervisor) replace(r *reader, call uint64) {
	if r.call.CompareAndSwap(call, replaced) {
		s.follow()
	}
}

// watchLeader replaces a reader that is in the same call as at the last look. It ends when there
// was no call since.
func (s *Supervisor) watchLeader() {
	l := &s.leader
	r := l.reader.Load()
	call, calls := r.call.Load(), l.calls.Load()
	switch {
	case call == idle && calls == l.seen:
		l.watching.Store(false)
		if l.calls.Load() == calls || !l.watching.CompareAndSwap(false, true) {
			return // the next call starts the timer, or has started it
		}
	case call != idle && call == l.seen:
		s.replace(r, call)
	}
	l.seen = calls
	l.timer.Reset(takeOver)
}

// read takes notifications until the supervisor stops, the last process under the filter has
// ended, or another reader leads.
func (s *Supervisor) read(r *reader) {
	// A thread of its own answers faster than one that other goroutines share.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &s.leader
	poll := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}, {Fd: int32(s.stopped.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, -1); err != nil && err != unix.EINTR {
			break
		}
		if poll[1].Revents != 0 || poll[0].Revents&unix.POLLHUP != 0 {
			break
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			continue
		}
		c := &Call{s: s}
		errno := s.listener.receive(&c.n)
		if errno == unix.EINTR || errno == unix.ENOENT { // the caller died meanwhile
			continue
		}
		if errno != 0 {
			break
		}
		if s.slow.any.Load() {
			go s.dispatch(c) // dispatch may read memory that waits
			continue
		}
		c.reader, c.number = r, l.calls.Add(1)
		r.call.Store(c.number)
		if !l.watching.Load() && l.watching.CompareAndSwap(false, true) {
			l.timer.Reset(takeOver)
		}
		s.dispatch(c)
		if !r.call.CompareAndSwap(c.number, idle) {
			return // another one leads
		}
	}
	l.timer.Stop()
	l.ended.Done()
}

// MayTakeLong tells the supervisor that the call may take long from here on.
func (c *Call) MayTakeLong() {
	if c.reader != nil {
		c.s.replace(c.reader, c.number)
	}
}
