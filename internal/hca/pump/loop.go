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

	"github.com/softmkey/softmkey/internal/base/assist"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/packetconn"
)

// loop is a goroutine with a thread of its own. It polls the doorbells of its contexts, which are
// ordinary memory that programs write to, and the device's socket. With one thread for doorbells
// and one for the socket, every message would wake the other thread, on processors that the
// programs themselves keep busy.
//
// After work the goroutine polls again at once. After a short time without work it takes naps, which
// grow with the time. A packet ends a nap, unless it comes through shared memory and the nap is short
// (undisturbed); a doorbell is found at the end of the nap. After a longer time the goroutine sleeps:
// hardware watchpoints wake it, and where not every register has one, the sleeps are short at first. It
// sleeps without a timeout while no queue pair can be rung.
//
// If programs wake helpers, those do this work in its place for most of the time: see helpers.
type loop struct {
	port   *roce.Port       // nil: the port has its own goroutine for packets
	socket int              // a descriptor of the port's socket, -1 without port
	near   netconn.Neighbor // nil: all packets of port arrive at the socket

	helpers *helpers // nil: there are none

	mu      sync.Mutex
	members []member // replaced, never changed

	event    int         // eventfd that wakes the sleeper
	prune    atomic.Bool // a context was removed: its program's watchpoints are to be closed
	sleeping atomic.Bool
	ending   atomic.Bool
	started  bool
	ended    chan struct{}

	looking sync.Mutex // held while the contexts are polled; guards the following fields
	rang    bool       // the last look found doorbells
	recent  []caller   // contexts that had work lately, at most mostRecent, the last of them at the end
	next    int        // index in members of the next look's chunk
	rounds  int        // how often all members were polled
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

// The tuned times and counts. A row says what it is, when it was chosen and by which figures, and what it
// costs to be wrong. The figures are medians of whole programs (SPDK's nvme_perf, ib_write_lat, bench/queue) on
// a virtual machine with two processors, on both of which programs spin. The messages of the commits of these
// days have the details.
const (
	// A spin is how long the goroutine polls without a pause after work. Too short: an answer that was
	// about to come waits for a whole nap. Too long: a program on the same processor cannot run.
	//
	// spinTime is the spin. Chosen, 2026-11-22, for programs that spin on all processors; 20 µs before.
	spinTime = 5 * time.Microsecond
	// roomySpin is the spin while the page of the helpers says that this thread polls: there is a processor
	// for it, or the programs want it to have one. They answer within 12 µs. 2026-11-23: 4 KiB requests one at
	// a time, two runs, median 65 µs instead of 108 with spinTime.
	roomySpin = 12 * time.Microsecond

	// A nap is how long the goroutine sleeps at a time while programs are active. Too short: naps take the
	// processor from the programs that are waited for. Too long: a doorbell waits for the end of the nap.
	//
	// shortNap is the shortest nap. 2026-11-23: one request in flight takes 62 µs, 64 with naps of 20 µs,
	// 59 with 15 µs, which leaves the programs 5 µs of the processor; with 12 µs it needs two naps.
	shortNap = 18 * time.Microsecond
	// streamNap is shortNap while the device moves a stream: its programs take many completions and post
	// many requests at a time. 2026-11-23, instead of 20 µs: bench/queue +5 to +9 %, ib_write_bw with
	// 64 KiB +1 to +4 %.
	streamNap = 40 * time.Microsecond
	// A nap is at least 1/napPart of the time since there was work. Without that the threads of two
	// devices whose program waits took a whole processor (2026-11-23). Smaller: a doorbell after a pause
	// is found later. Larger: the threads of idle devices take more of the processors.
	napPart = 4
	// undisturbed is the longest nap that packets in shared memory do not end. A wake-up on another processor of a
	// virtual machine costs the sender 13 µs, and arrives after 44 µs, when the nap is over. 2026-11-23: ib_write_lat
	// between two runs 49 instead of 90 µs. Longer: a packet waits for the end of the nap. Shorter: the sender pays
	// for wake-ups that come too late.
	undisturbed = streamNap

	// active is how long programs count as active after work. Afterwards the goroutine sleeps under
	// watchpoints. Shorter: each doorbell after a small pause costs its program a trap and this thread a
	// wake-up of 0.2 ms. Longer: an idle device naps, which takes a processor, for longer. 2026-11-22, no
	// measurement is recorded.
	active = 2 * time.Millisecond

	// The following are about sleeps after active. idlePart and longSleep hold where not every register has
	// a watchpoint: such a sleep is 1/idlePart of the time since there was work, so that a doorbell's delay is
	// a small part of the pause before it, and longSleep at most. Longer sleeps: doorbells are found later.
	// Shorter ones: idle devices take more of the processors. 2026-11-22, no measurement is recorded.
	idlePart  = 8
	longSleep = 50 * time.Millisecond
	// watchedSleep is the first sleep under watchpoints. Each sleep is twice the one before, up to
	// longWatchedSleep. They end because a thread that the program has started meanwhile has no watchpoint: its
	// first doorbell waits for the end. Shorter: more wake-ups, 0.2 ms of a processor each. 2026-11-22: an
	// idle QP takes 0.6 % of a core with the longer sleeps, 2.6 % with watchedSleep alone.
	watchedSleep     = 10 * time.Millisecond
	longWatchedSleep = 60 * time.Millisecond

	// scanEvery is the number of polls of all registers between two scans of all doorbell records. A
	// scan finds requests whose program did not write the register. Larger: these wait longer while
	// the goroutine does not pause. Smaller: more memory is read for each request. Not measured.
	scanEvery = 64
	// chunk is the number of contexts that a look polls, in turn, besides those that had work lately,
	// which are mostRecent at most. A poll costs about 0.1 µs. 2026-11-23: a WRITE beside 499 idle programs
	// takes 6.3 µs, 44 when each look polled all of them, 4.8 in a program alone. Larger: the programs
	// that work wait for polls of others. Smaller: the first request after a pause is found later.
	chunk      = 16
	mostRecent = 8
	// tooLate is the lateness of the thread that contexts are told. Lower: the cost of a nap looks like
	// a fault of the machine. Higher: timeouts of a busy machine have no reason in the trace. Not measured.
	tooLate = 10 * time.Millisecond
	// socketEvery is the number of looks without a pause of which one is also at the sockets, which takes a system
	// call. A pause ends when a socket has packets. Larger: they wait for longer. Smaller: a spin finds doorbells
	// and packets in memory later. Not measured.
	socketEvery = 4
	// sweepEvery is how often a goroutine that does not sleep looks for the watchpoints of threads that
	// have ended. Longer: their descriptors stay for longer. Shorter: more system calls. Not measured.
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
			l.near, _ = netconn.As[netconn.Neighbor](conn)
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
	raw, err := netconn.SyscallConn(conn)
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
	l.looking.Lock() // waits for a look that began before
	defer l.looking.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.members, func(m member) bool { return m.ctx == ctx }); i >= 0 {
		removed = l.members[i]
		l.members = slices.Delete(slices.Clone(l.members), i, i+1)
	}
	l.recent = slices.DeleteFunc(l.recent, func(c caller) bool { return c.ctx == ctx })
	l.prune.Store(true)
	l.wake()
	return removed
}

// all returns the members. The caller may keep the slice.
func (l *loop) all() []member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.members
}

// registers returns the registers of the contexts' programs.
func (l *loop) registers() (all []Registers) {
	for _, m := range l.all() {
		if m.registers == nil {
			all = append(all, Registers{}) // for arm, which then knows that doorbells may come unseen
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
	if l.helpers != nil {
		l.helpers.close()
	}
	if l.started {
		<-l.ended
	}
	if l.socket >= 0 {
		unix.Close(l.socket)
	}
	unix.Close(l.event)
}

// look handles packets, and polls the contexts that had work lately and the next chunk of all contexts.
// Once in scanEvery rounds it reads all doorbell records of these contexts, too. It reports whether there
// was work, whether one of the contexts has a QP that may be rung, and how many looks it takes to poll
// all contexts.
//
// If a helper has the turn, it looks once more, and look does nothing. memory is that of lookInTurn.
func (l *loop) look(memory bool) (worked, busy bool, looksOfAll int) {
	if l.helpers == nil {
		return l.lookInTurn(memory)
	}
	if !l.helpers.turn.take() {
		return false, true, 1
	}
	worked, busy, looksOfAll = l.lookInTurn(memory)
	if l.helpers.turn.leave() {
		worked = true // a helper has asked for a look, so the caller comes again
	}
	return worked, busy, looksOfAll
}

// lookInTurn is look for a thread that has the turn, or that needs none, because there are no helpers. With memory, it
// handles those packets only that have passed in memory.
func (l *loop) lookInTurn(memory bool) (worked, busy bool, looksOfAll int) {
	l.looking.Lock()
	members := l.all()
	if l.next >= len(members) {
		l.next = 0
	}
	polled := members[l.next:min(l.next+chunk, len(members))]
	l.next += len(polled)
	scan := l.rounds%scanEvery == scanEvery-1
	if l.next >= len(members) {
		l.rounds++
	}
	var last member
	if len(members) > len(polled) { // otherwise polled has the recent ones
		for _, c := range l.recent {
			if c.look(scan) {
				worked, last = true, c.member
			}
			busy = busy || c.ctx.Busy()
		}
	}
	for _, m := range polled {
		if m.look(scan) {
			worked, last = true, m
		}
		busy = busy || m.ctx.Busy()
	}
	if l.rang = worked; worked {
		l.hadWork(last)
	}
	l.looking.Unlock()
	return l.packets(worked, memory), busy, (len(members) + chunk - 1) / chunk
}

// lookAtAll handles packets, and reads every doorbell record of every context. If a helper has the turn, it
// reports work, so that the caller comes again.
func (l *loop) lookAtAll() (worked, busy bool) {
	if h := l.helpers; h != nil {
		if !h.turn.take() {
			return true, true
		}
		defer func() {
			if h.turn.leave() {
				worked = true
			}
		}()
	}
	l.looking.Lock()
	for _, m := range l.all() {
		if m.look(true) {
			worked = true
			l.hadWork(m)
		}
		busy = busy || m.ctx.Busy()
	}
	l.looking.Unlock()
	return l.packets(worked, false), busy
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

// kick wakes the receivers of packets that were put into shared memory, on a processor, and reports whether there
// were some.
func (l *loop) kick(cpu int) bool { return l.near != nil && l.near.Kick(cpu) }

// packets handles the packets that have arrived, at the end of a look, and reports whether there was work in it. worked
// is whether there was before. memory is that of lookInTurn.
func (l *loop) packets(worked, memory bool) bool {
	switch {
	case l.port == nil:
	case memory:
		worked = l.port.PollMemory() || worked
	default:
		worked = l.port.Poll() || worked
	}
	if worked && l.helpers != nil {
		l.helpers.completed()
	}
	return worked
}

func (l *loop) run() {
	runtime.LockOSThread() // never unlocked: the thread's own settings end with it
	t := newThread(l.bytes, l.pids, func() bool { return l.near != nil && l.near.Blocking() })
	defer t.close()
	var w watcher
	defer w.close()
	last := time.Now()    // when there was work
	watch := watchedSleep // the length of the next sleep under watchpoints
	swept := last
	var spin time.Duration  // how long to look without a pause
	looks, busy := 0, false // looks since there was work or a pause, and whether one of them saw a busy context
	for !l.ending.Load() {
		began := time.Now()
		if l.helpers != nil && l.helpers.helpersWork(t, began) {
			w.disarm()
			t.release()
			l.helpers.attend(t)
			last, watch = time.Now(), watchedSleep
			looks, busy = 0, false
			continue
		}
		worked, sawBusy, looksOfAll := l.look(looks%socketEvery != 0)
		now := time.Now()
		if !worked {
			l.tell(now.Sub(began)) // a look without work takes microseconds
		}
		if l.prune.Load() && l.prune.Swap(false) {
			w.prune(l.registers())
		} else if now.Sub(swept) >= sweepEvery {
			swept = now
			w.sweep()
		}
		if worked {
			last, watch = now, watchedSleep
			looks, busy = 0, false
			l.kick(assist.Processor())
			t.reschedule(now)
			continue
		}
		if looks++; looks == 1 {
			spin = spinTime
			if l.helpers != nil && l.helpers.page.Polling() != assist.No {
				spin = roomySpin
			}
		}
		busy = busy || sawBusy
		switch idle := now.Sub(last); {
		case idle < spin || looks < looksOfAll:
			continue
		case idle < active && busy:
			w.disarm()
			shortest := shortNap
			if t.streaming {
				shortest = streamNap
			}
			l.nap(max(shortest, idle/napPart))
			looks, busy = 0, false
			continue
		}
		t.release()
		if l.helpers != nil {
			l.helpers.listen()
		}
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
				watch = min(2*watch, longWatchedSleep)
			case busy:
				if l.sleep(&w, min(now.Sub(last)/idlePart, longSleep)) {
					last = time.Now()
				}
			default:
				w.close()
				l.sleep(nil, -1)
				last = time.Now()
			}
		}
		l.sleeping.Store(false)
		looks, busy = 0, false
	}
}

// pids returns the processes of the programs that had work lately, the last one at the end.
func (l *loop) pids() (pids []int) {
	l.looking.Lock()
	defer l.looking.Unlock()
	for _, c := range l.recent {
		if c.pid != 0 {
			pids = append(pids, c.pid)
		}
	}
	return pids
}

// bytes returns how many bytes the port has sent and received since it was opened.
func (l *loop) bytes() uint64 {
	if l.port == nil {
		return 0
	}
	c := l.port.Counters()
	return c.SentBytes + c.RecvBytes
}

// nap waits for a packet, for a signal, or for d. It does not notify the Go scheduler, which would give
// the goroutine's processor to other goroutines, and would need a thread that checks for this at short
// intervals.
func (l *loop) nap(d time.Duration) {
	if d > undisturbed && l.near != nil && l.near.Sleep() {
		return
	}
	began := time.Now()
	if l.pause(d) == 0 {
		l.tell(time.Since(began) - d)
	}
}

// pause waits for a packet at the socket, for a signal, which it takes, or for d, without notifying the Go
// scheduler. It returns how many of both have come.
func (l *loop) pause(d time.Duration) int {
	fds := [2]unix.PollFd{{Fd: int32(l.event), Events: unix.POLLIN}, {Fd: int32(l.socket), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	n := rawPoll(fds[:], &ts)
	if fds[0].Revents != 0 {
		l.takeSignals()
	}
	return n
}

// takeSignals takes the signals that have come, so that the next wait does not end at once.
func (l *loop) takeSignals() {
	var count [8]byte
	unix.Read(l.event, count[:])
}

// tell tells the contexts that the thread was late by excess, if that is tooLate or more.
func (l *loop) tell(excess time.Duration) {
	if excess < tooLate {
		return
	}
	for _, m := range l.all() {
		if m.ctx.Busy() {
			m.ctx.Late(excess)
		}
	}
}

// sleep waits for a signal, a packet, a store under a watchpoint of w or, unless d is negative, for d. It
// reports whether it ended before d was over. w may be nil.
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
	l.takeSignals()
	if w != nil {
		for _, p := range w.points {
			p.drain()
		}
	}
	return n > 0
}
