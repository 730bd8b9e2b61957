//go:build linux

package pump

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/roce"
)

// loop is a goroutine with a thread of its own. It polls the doorbells of its contexts, which are
// ordinary memory that programs write to, and the device's socket. With one thread for doorbells
// and one for the socket, every message would wake the other thread, on processors that the
// programs themselves keep busy.
//
// After work the goroutine polls again at once. After a short time without work it takes naps. A
// packet ends a nap; a doorbell is found at the end of the nap. After a longer time hardware
// watchpoints wake it, and where not every register has one, the naps grow. It sleeps without a
// timeout while no queue pair can be rung.
type loop struct {
	port   *roce.Port          // nil: the port has its own goroutine for packets
	socket int                 // a descriptor of the port's socket, -1 without port
	near   packetconn.Neighbor // nil: all packets of port arrive at the socket
	late   time.Duration       // by which naps exceed their time: their median

	mu      sync.Mutex
	members []member // replaced, never changed

	event    int         // eventfd that wakes the sleeper
	left     atomic.Bool // a context was removed: its program's watchpoints are to be closed
	sleeping atomic.Bool
	ending   atomic.Bool
	started  bool
	ended    chan struct{}

	turn   sync.Mutex // held during a look at the contexts; guards the following fields
	recent []caller   // contexts that had work lately, at most mostRecent, the last of them at the end
	next   int        // index in members at which the next look begins
	rounds int        // how often all members were looked at
}

// member is a context of a loop.
type member struct {
	ctx       Context
	registers func() Registers // nil: they cannot be watched
}

// caller is a member that had work.
type caller struct {
	member
	pid int // of its program; 0: not known
}

const (
	// spinTime is how long the goroutine looks without a pause after work. Programs
	// that wait for the outcome may spin on this processor, so it is short. Where naps end late and
	// the program that answers next runs on another processor, it is longSpin: the program answers in
	// that time, which saves a nap (see spin).
	spinTime = 5 * time.Microsecond
	longSpin = 12 * time.Microsecond
	// streamSpin is longSpin while the device moves a stream: the program has many requests to work off
	// before it answers.
	streamSpin = 40 * time.Microsecond
	// nap is how long it sleeps at a time while programs are active, and at least one part in
	// napPart of the time since there was work: naps of several devices would otherwise take a
	// processor from the programs that are waited for. A nap costs about 5 µs of a processor,
	// and 25 µs in a virtual machine whose timers are those of its host.
	nap     = 18 * time.Microsecond
	napPart = 4
	// streamNap is nap while the device moves a stream: its programs take many completions and post
	// many requests at a time.
	streamNap = 40 * time.Microsecond
	// unannounced is the longest nap that packets in shared memory do not end where interrupts
	// are late by dearInterrupt or more, as they are in a virtual machine whose interrupts are
	// its host's. A wake-up on another processor is an interrupt, which costs the sender 13 µs
	// there, and arrives 30 µs later: the nap is over by then.
	unannounced   = streamNap
	dearInterrupt = 8 * time.Microsecond
	// active is how long programs count as active after work.
	active = 2 * time.Millisecond
	// longNap is the longest nap where not every register has a watchpoint. A nap is at most
	// one part in idlePart of the time since there was work, so that a doorbell's delay is a
	// small part of the pause before it.
	longNap  = 50 * time.Millisecond
	idlePart = 8
	// watchedSleep is how long it sleeps under watchpoints at first, and longWatch at most:
	// a thread that was started meanwhile has no watchpoint. Each wake-up takes about
	// 0.2 ms of a processor.
	watchedSleep = 10 * time.Millisecond
	longWatch    = 60 * time.Millisecond
	// scanEvery is the number of polls of the registers between two scans of every record.
	scanEvery = 64
	// chunk is the number of contexts that a look polls, in turn, besides those that had work
	// lately, which are at most mostRecent. A poll costs about 0.1 µs: with hundreds of programs the one
	// that works must not wait for the polls of all others after each request.
	chunk      = 16
	mostRecent = 8
	// tooLate is the lateness of the thread that contexts are told: a busy machine's, and no cost of a nap.
	tooLate = 10 * time.Millisecond
	// sweepEvery is how often a goroutine that does not sleep looks for the watchpoints of
	// threads that have ended.
	sweepEvery = 100 * time.Millisecond
)

// newLoop makes a loop whose goroutine does not run yet.
func newLoop() (*loop, error) {
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("no eventfd: %w", err)
	}
	return &loop{event: event, socket: -1, ended: make(chan struct{})}, nil
}

// start starts the goroutine. It takes over the packets of port if conn, the port's
// network, is a socket.
func (l *loop) start(port *roce.Port, conn packetconn.Conn) {
	done := func() {}
	if conn != nil && port.Caps().Poll {
		if fd, err := duplicate(conn); err == nil {
			l.socket, l.port = fd, port
			l.near, _ = packetconn.AsNeighbor(conn)
			done = port.Polling(l.wake)
		}
	}
	l.started = true
	go func() {
		defer close(l.ended)
		l.run()
		done()
	}()
}

func duplicate(conn packetconn.Conn) (fd int, err error) {
	raw, err := packetconn.SyscallConn(conn)
	if err != nil {
		return -1, err
	}
	return unixsocket.Duplicate(raw)
}

// wake makes the goroutine poll again. It does not block.
func (l *loop) wake() {
	if l.sleeping.Load() {
		l.signal()
	}
}

func (l *loop) signal() {
	unix.Write(l.event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (l *loop) add(m member) {
	l.mu.Lock()
	l.members = append(slices.Clone(l.members), m)
	l.mu.Unlock()
	l.wake()
}

// remove removes a context and returns its member. When it returns, the goroutine does not use
// the context any more.
func (l *loop) remove(ctx Context) (removed member) {
	l.turn.Lock() // waits for a look that began before
	defer l.turn.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	var left []member
	for _, m := range l.members {
		if m.ctx == ctx {
			removed = m
		} else {
			left = append(left, m)
		}
	}
	l.members = left
	l.recent = slices.DeleteFunc(l.recent, func(c caller) bool { return c.ctx == ctx })
	l.left.Store(true)
	l.wake()
	return removed
}

// registers returns the registers of the contexts' programs.
func (l *loop) registers() (all []Registers) {
	l.mu.Lock()
	members := l.members
	l.mu.Unlock()
	for _, m := range members {
		if m.registers == nil {
			all = append(all, Registers{})
		} else if r := m.registers(); len(r.Addrs) > 0 {
			all = append(all, r)
		}
	}
	return all
}

// close ends the goroutine, if it was started.
func (l *loop) close() {
	l.ending.Store(true)
	l.signal()
	if l.started {
		<-l.ended
	}
	if l.socket >= 0 {
		unix.Close(l.socket)
	}
	unix.Close(l.event)
}

// look handles packets, and polls the contexts that had work lately and the next chunk of all. From time
// to time it reads every doorbell record of theirs, too. It reports whether there was work, whether
// one of them has a QP that may be rung, and how many looks all contexts take.
func (l *loop) look() (worked, busy bool, parts int) {
	l.turn.Lock()
	l.mu.Lock()
	members := l.members
	l.mu.Unlock()
	if l.next >= len(members) {
		l.next = 0
	}
	part := members[l.next:min(l.next+chunk, len(members))]
	l.next += len(part)
	scan := l.rounds%scanEvery == scanEvery-1
	if l.next >= len(members) {
		l.rounds++
	}
	var last member
	if len(members) > len(part) {
		for _, c := range l.recent {
			if c.look(scan) {
				worked, last = true, c.member
			}
			busy = busy || c.ctx.Busy()
		}
	}
	for _, m := range part {
		if m.look(scan) {
			worked, last = true, m
		}
		busy = busy || m.ctx.Busy()
	}
	if worked {
		l.hadWork(last)
	}
	l.turn.Unlock()
	return l.packets() || worked, busy, (len(members) + chunk - 1) / chunk
}

// lookAtAll handles packets, and reads every doorbell record of every context.
func (l *loop) lookAtAll() (worked, busy bool) {
	l.turn.Lock()
	l.mu.Lock()
	members := l.members
	l.mu.Unlock()
	for _, m := range members {
		if m.look(true) {
			worked = true
			l.hadWork(m)
		}
		busy = busy || m.ctx.Busy()
	}
	l.turn.Unlock()
	return l.packets() || worked, busy
}

// look polls a context, and reads its doorbell records if scan is set.
func (m member) look(scan bool) (worked bool) {
	worked = m.ctx.Poll()
	if scan && m.ctx.Scan() {
		worked = true
	}
	return worked
}

// hadWork puts a context at the end of the recent ones. If there are too many, the first one leaves. l.turn
// is held.
func (l *loop) hadWork(m member) {
	at := slices.IndexFunc(l.recent, func(c caller) bool { return c.ctx == m.ctx })
	var c caller
	if at >= 0 {
		c = l.recent[at]
		l.recent = slices.Delete(l.recent, at, at+1)
	} else {
		c = caller{member: m}
		if m.registers != nil {
			c.pid = m.registers().Pid
		}
	}
	if len(l.recent) == mostRecent {
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, c)
}

// packets handles the packets that have arrived at the socket, and reports whether there were
// some.
func (l *loop) packets() bool { return l.port != nil && l.port.Poll() }

func (l *loop) run() {
	runtime.LockOSThread() // never unlocked: the thread's own settings end with it
	t := newThread(l.bytes, l.pids)
	defer t.close()
	var w watcher
	defer w.close()
	last := time.Now() // when there was work
	watch := watchedSleep
	swept := last
	var spin time.Duration  // how long to look without a pause
	quiet, busy := 0, false // looks since there was work or a pause, and whether they saw a busy context
	for !l.ending.Load() {
		began := time.Now()
		worked, some, parts := l.look()
		now := time.Now()
		if !worked {
			l.tell(now.Sub(began)) // a look without work takes microseconds
		}
		if l.left.Load() && l.left.Swap(false) {
			w.prune(l.registers())
		} else if now.Sub(swept) >= sweepEvery {
			swept = now
			w.sweep()
		}
		if worked {
			last, watch = now, watchedSleep
			quiet, busy = 0, false
			t.active(now)
			continue
		}
		if quiet++; quiet == 1 {
			spin = l.spin(t)
		}
		busy = busy || some
		switch idle := now.Sub(last); {
		case idle < spin || quiet < parts:
			continue
		case idle < active && busy:
			w.disarm()
			shortest := nap
			if t.moving {
				shortest = streamNap
			}
			l.nap(max(shortest, idle/napPart))
			quiet, busy = 0, false
			continue
		}
		t.release()
		// From here on a wake is a signal. Doorbells that were rung before are found by the
		// look below, after the watchpoints are enabled.
		l.sleeping.Store(true)
		watched := busy && w.arm(l.registers)
		worked, busy = l.lookAtAll()
		if worked {
			last = time.Now()
		} else if !l.ending.Load() {
			switch {
			case watched:
				if l.sleep(&w, watch) {
					last = time.Now()
				}
				watch = min(2*watch, longWatch)
			case busy:
				if l.sleep(&w, min(now.Sub(last)/idlePart, longNap)) {
					last = time.Now()
				}
			default:
				w.close()
				l.sleep(nil, -1)
				last = time.Now()
			}
		}
		l.sleeping.Store(false)
		quiet, busy = 0, false
	}
}

// pids returns the processes of the programs that had work lately, the last one at the end.
func (l *loop) pids() (pids []int) {
	l.turn.Lock()
	defer l.turn.Unlock()
	for _, c := range l.recent {
		if c.pid != 0 {
			pids = append(pids, c.pid)
		}
	}
	return pids
}

// bytes returns how many bytes the port has sent and received.
func (l *loop) bytes() uint64 {
	if l.port == nil {
		return 0
	}
	c := l.port.Counters()
	return c.SentBytes + c.RecvBytes
}

// nap waits for a packet or the end of a short time. It does not notify the Go scheduler,
// which would give the goroutine's processor to others, and would need a thread that
// checks for this at short intervals.
func (l *loop) nap(d time.Duration) {
	if announces(d, l.late) && l.near != nil && l.near.Sleep() {
		return
	}
	fds := [2]unix.PollFd{{Fd: int32(l.event), Events: unix.POLLIN}, {Fd: int32(l.socket), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	began := time.Now()
	if rawPoll(fds[:], &ts) == 0 {
		excess := time.Since(began) - d
		l.late = lateness(l.late, excess)
		l.tell(excess)
	}
}

// tell tells the contexts that the thread was late by excess, if that is much.
func (l *loop) tell(excess time.Duration) {
	if excess < tooLate {
		return
	}
	l.mu.Lock()
	members := l.members
	l.mu.Unlock()
	for _, m := range members {
		if m.ctx.Busy() {
			m.ctx.Late(excess)
		}
	}
}

// spin returns how long the goroutine looks without a pause after work. Where naps end late, that depends
// on where the program runs that answers next. The program that rang last waits for an answer
// itself, so it is one of the others, or the only one. On another processor it answers while the
// thread looks. On the thread's own processor it answers during a nap, which should begin at once.
func (l *loop) spin(t *thread) time.Duration {
	if l.late < dearInterrupt {
		return spinTime
	}
	if t.beside {
		return longSpin
	}
	pids := l.pids()
	if len(pids) < 2 {
		return spinTime
	}
	switch here, elsewhere := t.found(pids[:len(pids)-1]); {
	case elsewhere && !here && t.moving:
		return streamSpin
	case elsewhere && !here:
		return longSpin
	case here && !elsewhere:
		return 0
	}
	return spinTime
}

// announces reports whether packets in shared memory shall end a nap of length d.
func announces(d, late time.Duration) bool { return d > unannounced || late < dearInterrupt }

// lateness returns what loop.late becomes by a nap that took longer by excess. It moves to the median
// of the naps by small steps: in some of them the thread also waited for a processor.
func lateness(late, excess time.Duration) time.Duration {
	const step = 250 * time.Nanosecond
	if excess < late {
		return late - step
	}
	return late + step
}

// sleep waits for a signal, a packet, a store under a watchpoint or the end of a time,
// which is unbounded if it is negative. It reports whether something came.
func (l *loop) sleep(w *watcher, d time.Duration) (came bool) {
	if l.near != nil && l.near.Sleep() {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(l.event), Events: unix.POLLIN}, {Fd: int32(l.socket), Events: unix.POLLIN}}
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
	began := time.Now()
	n, _ := unix.Ppoll(fds, ts, nil)
	if n == 0 && d >= 0 {
		l.tell(time.Since(began) - d)
	}
	var count [8]byte
	unix.Read(l.event, count[:])
	if w != nil {
		for _, p := range w.points {
			p.drain()
		}
	}
	return n > 0
}
