//go:build linux

package uverbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// doorbell is the goroutine that moves a device. It polls the doorbells of the contexts,
// which are ordinary memory that programs write to, and the device's socket. With a thread
// for each, every message would wake the other thread, on processors that the programs
// themselves keep busy.
//
// After work it polls again at once. After a short time without work it takes naps: a packet
// ends a nap, a doorbell waits for its end. After a longer time hardware
// watchpoints wake it, and where not every register has one, the naps grow. It sleeps
// without end while no queue pair can be rung.
type doorbell struct {
	registers func() []registers // of the programs; nil where they cannot be watched
	port      *roce.Port         // nil: the port has its own goroutine for packets
	socket    int                // a descriptor of the port's socket, -1 without port

	mu       sync.Mutex
	contexts []*adapter.Context // replaced, never changed

	event    int         // eventfd that wakes the sleeper
	left     atomic.Bool // a context was removed: its program's watchpoints are to be closed
	sleeping atomic.Bool
	ending   atomic.Bool
	ended    chan struct{}
	turn     sync.Mutex // held during a look at the contexts
}

const (
	// spinTime is how long the goroutine looks without a pause after work. Programs
	// that wait for the outcome may spin on this processor, so it is short.
	spinTime = 5 * time.Microsecond
	// nap is how long it sleeps at a time while programs are active. A nap costs about
	// 5 µs of a processor.
	nap = 20 * time.Microsecond
	// active is how long programs count as active after work.
	active = 2 * time.Millisecond
	// longNap is the longest nap where not every register has a watchpoint. A nap is at most
	// the part idlePart of the time since there was work, so that a doorbell that is found
	// late is late by a small part of the pause before it.
	longNap  = 50 * time.Millisecond
	idlePart = 8
	// watchedSleep is how long it sleeps under watchpoints at first, and longWatch at most:
	// a thread that was started meanwhile has no watchpoint. Each wake-up takes about
	// 0.2 ms of a processor.
	watchedSleep = 10 * time.Millisecond
	longWatch    = 60 * time.Millisecond
	// scanEvery is how many looks at hints pass between two looks at every record.
	scanEvery = 64
	// sweepEvery is how often a goroutine that does not sleep looks for the watchpoints of
	// threads that have ended.
	sweepEvery = 100 * time.Millisecond
)

// newDoorbell makes a doorbell whose goroutine does not run yet.
func newDoorbell(registers func() []registers) (*doorbell, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &doorbell{registers: registers, event: event, socket: -1, ended: make(chan struct{})}, nil
}

// start starts the goroutine. It takes over the packets of port if conn, the port's
// network, is a socket.
func (b *doorbell) start(port *roce.Port, conn packetconn.Conn) {
	done := func() {}
	if conn != nil && port.Caps().Poll {
		if fd, err := duplicate(conn); err == nil {
			b.socket, b.port = fd, port
			done = port.Polling(func() { b.wake(nil) })
		}
	}
	go func() {
		defer close(b.ended)
		b.run()
		done()
	}()
}

func duplicate(conn packetconn.Conn) (fd int, err error) {
	raw, err := packetconn.SyscallConn(conn)
	if err != nil {
		return -1, err
	}
	if bad := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); bad != nil {
		return -1, bad
	}
	return fd, err
}

// wake makes the goroutine poll again. It does not block.
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

// remove removes a context. When it returns, the goroutine does not use the context any more.
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
	b.left.Store(true)
	b.wake(nil)
}

// close ends the goroutine, if it was started.
func (b *doorbell) close(started bool) {
	b.ending.Store(true)
	b.signal()
	if started {
		<-b.ended
	}
	if b.socket >= 0 {
		unix.Close(b.socket)
	}
	unix.Close(b.event)
}

// look handles packets and polls every context; scan makes it read every doorbell record,
// too. It reports whether there was work, and whether a context has a QP that may be rung.
func (b *doorbell) look(scan bool) (worked, busy bool) {
	b.turn.Lock()
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
	b.turn.Unlock()
	if b.port != nil && b.port.Poll() {
		worked = true
	}
	return worked, busy
}

func (b *doorbell) run() {
	runtime.LockOSThread() // never unlocked: the thread's own settings end with it
	t := newThread(b.bytes)
	defer t.close()
	var w watcher
	defer w.close()
	last := time.Now() // when there was work
	watch := watchedSleep
	swept := last
	for n := 1; !b.ending.Load(); n++ {
		worked, busy := b.look(n%scanEvery == 0)
		now := time.Now()
		if b.left.Load() && b.left.Swap(false) && b.registers != nil {
			w.prune(b.registers())
		} else if now.Sub(swept) >= sweepEvery {
			swept = now
			w.sweep()
		}
		if worked {
			last, watch = now, watchedSleep
			t.active(now)
			continue
		}
		switch idle := now.Sub(last); {
		case idle < spinTime:
			continue
		case idle < active && busy:
			w.disarm()
			b.nap(nap)
			continue
		}
		t.release()
		// From here on a wake is a signal. Doorbells that were rung before are found by the
		// look below, after the watchpoints are enabled.
		b.sleeping.Store(true)
		watched := busy && b.registers != nil && w.arm(b.registers())
		worked, busy = b.look(true)
		if worked {
			last = time.Now()
		} else if !b.ending.Load() {
			switch {
			case watched:
				if b.sleep(&w, watch) {
					last = time.Now()
				}
				watch = min(2*watch, longWatch)
			case busy:
				if b.sleep(&w, min(now.Sub(last)/idlePart, longNap)) {
					last = time.Now()
				}
			default:
				w.close()
				b.sleep(nil, -1)
				last = time.Now()
			}
		}
		b.sleeping.Store(false)
	}
}

// bytes returns how many bytes the port has sent and received.
func (b *doorbell) bytes() uint64 {
	if b.port == nil {
		return 0
	}
	c := b.port.Counters()
	return c.SentBytes + c.RecvBytes
}

// nap waits for a packet or the end of a short time. It does not notify the Go scheduler,
// which would give the goroutine's processor to others, and would need a thread that
// checks for this at short intervals.
func (b *doorbell) nap(d time.Duration) {
	fds := [2]unix.PollFd{{Fd: int32(b.event), Events: unix.POLLIN}, {Fd: int32(b.socket), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	rawPoll(fds[:], &ts)
}

// sleep waits for a signal, a packet, a store under a watchpoint or the end of a time,
// which is unbounded if it is negative. It reports whether something came.
func (b *doorbell) sleep(w *watcher, d time.Duration) (came bool) {
	fds := []unix.PollFd{{Fd: int32(b.event), Events: unix.POLLIN}, {Fd: int32(b.socket), Events: unix.POLLIN}}
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
	n, _ := unix.Ppoll(fds, ts, nil)
	var count [8]byte
	unix.Read(b.event, count[:])
	if w != nil {
		for _, p := range w.points {
			p.drain()
		}
	}
	return n > 0
}
