//go:build linux

package pump

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/assist"
)

// helpers are threads that do a device's work on the processors of its programs, one for each
// processor. A program that spins on a processor gets no answer before the device's own thread runs there or
// elsewhere, which takes a nap or an interrupt; a helper that the program wakes runs at once, and gives the
// processor back. While helpers do the work, the device's own thread only looks after them.
//
// One thread at a time does the device's work: see turn.
type helpers struct {
	page            *assist.Page
	loop            *loop
	once            sync.Once
	wg              sync.WaitGroup
	turn            turn
	addedProcessors int // processors that the Go scheduler got for the threads

	began     time.Time
	last      atomic.Int64  // time since began when a helper had work last
	wakeUntil atomic.Int64  // time since began until which threads of programs may sleep: they are to be woken
	asked     atomic.Uint32 // an assist.Polling: why the own thread is to take over; 0: it is not

	// Of the device's own thread:
	observed  time.Time                    // when it looked last for a processor with room
	idle      [assist.Processors + 1]int64 // how long each processor was idle then, in ticks
	ran       time.Duration                // of the own thread, then
	counted   time.Time                    // when it read total
	total     uint64                       // bytes that the device had sent and received then
	missed    int                          // how many naps in a row ended with doorbells for which nobody had woken a helper
	unhelped  time.Duration                // how long the thread polls after mostMissed of them
	pollUntil time.Time                    // until when the own thread polls, and nobody wakes helpers
	pollWhy   assist.Polling               // why it does
}

const (
	// attended is how long the device's own thread naps, for watchNap at a time, after a helper had work last.
	// Longer: a program that stops using the library's calls waits for naps for longer. Not measured.
	attended = 2 * time.Millisecond
	watchNap = time.Millisecond
	// A helper works for mostWork before the time that it has run is read, which takes a system call, and may run for
	// mostWork from then on. It has the device's priority, so that the program whose processor it uses waits
	// meanwhile. Longer: programs wait for longer. Shorter: the own thread takes over although a long message would
	// soon be done. Not measured.
	mostWork = 100 * time.Microsecond
	// mostMissed naps in a row that found doorbells for which nobody had woken a helper come from a program that rings
	// without libsoftmkey-run.so. The own thread then polls for firstUnhelped, and twice as long each time up to longUnhelped as long as
	// this goes on. Fewer, or longer: the own thread takes the processor from programs that are helped. Not
	// measured.
	mostMissed    = 10
	firstUnhelped = 200 * time.Millisecond
	longUnhelped  = 5 * time.Second
	// observeEvery is the time between two looks for a processor with room. Longer: the own thread begins to
	// poll later. Shorter: ticks of 10 ms do not tell how idle a processor was. Not measured.
	observeEvery = 100 * time.Millisecond
	// streamLasts is how long the own thread polls after it was told of a stream. Programs and other devices tell it
	// again every 5 ms as long as the stream goes on. Longer: requests one at a time that follow a stream wait for
	// naps for longer. Shorter: a stream whose reminder is late falls back to the helpers. Not measured.
	streamLasts = 2 * checkEvery
	// sleepersLast is for how long the device wakes sleeping programs after a program has last announced that it sleeps.
	// Programs repeat the announcement every 5 ms. Longer: the device makes system calls that wake nobody. Shorter:
	// where processors are scarce, the goroutine that receives announcements is late, and programs sleep for the whole
	// 0.2 ms of their naps. Not measured.
	sleepersLast = 200 * time.Millisecond
	// wideStream is how many bytes that helpers move between two checks make the own thread poll. It goes on while the
	// device moves a stream. Fewer: requests of a few KiB, one at a time, are taken from the helpers.
	wideStream = 4 * streamBytes
	// mostFutile is how many wake-ups in a row may find nothing. A helper then sleeps for futilePause, so that
	// a program that wakes it without end costs others no more than one that spins.
	mostFutile  = 32
	futilePause = time.Millisecond
	// A helper that was woken in the last busyWait waits without notifying the Go scheduler: see assist.Line.Wait. A
	// wait lasts for mostWait at most.
	busyWait = 20 * time.Millisecond
	mostWait = time.Second
)

// turn says who does the device's work. A thread that does not get the turn is sure that the one who has it
// looks once more.
type turn struct{ state atomic.Int32 }

const (
	turnFree  = 0
	turnTaken = 1
	turnAgain = 2 // taken, and somebody else has asked for it
)

// take takes the turn if it is free.
func (t *turn) take() bool {
	for {
		if t.state.CompareAndSwap(turnFree, turnTaken) {
			return true
		}
		if t.state.CompareAndSwap(turnTaken, turnAgain) || t.state.Load() == turnAgain {
			return false
		}
	}
}

// give gives the turn back, unless somebody has asked for it: the caller has to look once more then.
func (t *turn) give() bool {
	if t.state.CompareAndSwap(turnTaken, turnFree) {
		return true
	}
	t.state.Store(turnTaken)
	return false
}

// leave gives the turn back in any case, and reports whether somebody has asked for it.
func (t *turn) leave() (asked bool) { return t.state.Swap(turnFree) == turnAgain }

func newHelpers(l *loop, page *assist.Page) *helpers {
	return &helpers{page: page, loop: l, began: time.Now(), unhelped: firstUnhelped}
}

// start starts the threads, on the first call.
func (h *helpers) start() {
	h.once.Do(func() {
		var allowed unix.CPUSet
		if unix.SchedGetaffinity(0, &allowed) != nil {
			return
		}
		cpus := helped(allowed)
		moreProcessors(len(cpus))
		h.addedProcessors = len(cpus)
		for _, cpu := range cpus {
			h.wg.Go(func() { h.run(cpu) })
		}
		program, peer := h.page.Streams()
		h.wg.Go(func() { h.await(program, func() { h.takeOver(assist.Stream) }) })
		h.wg.Go(func() { h.await(peer, func() { h.takeOver(assist.Beside) }) })
		h.wg.Go(func() {
			h.await(h.page.Sleepers(), func() { h.wakeUntil.Store(int64(time.Since(h.began) + sleepersLast)) })
		})
	})
}

// helped returns the processors that get a helper: those of the allowed ones for which the page has a line. A program
// on another processor waits for the device's own thread.
func helped(allowed unix.CPUSet) (cpus []int) {
	for cpu := range assist.Processors {
		if allowed.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// close ends the threads.
func (h *helpers) close() {
	h.once.Do(func() {}) // none will be started
	for cpu := range assist.Processors {
		h.page.Line(cpu).Off()
	}
	program, peer := h.page.Streams()
	program.Off()
	peer.Off()
	h.page.Sleepers().Off()
	h.wg.Wait()
	moreProcessors(-h.addedProcessors)
}

var processors sync.Mutex

// moreProcessors gives the Go scheduler n more processors: a helper that waits holds one.
func moreProcessors(n int) {
	processors.Lock()
	defer processors.Unlock()
	if n != 0 {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
}

func (h *helpers) run(cpu int) {
	runtime.LockOSThread() // never unlocked: the thread's own settings end with it
	var one unix.CPUSet
	one.Set(cpu)
	if unix.SchedSetaffinity(0, &one) != nil {
		return
	}
	schedule("softmkey-cpu" + strconv.Itoa(cpu))
	line := h.page.Line(cpu)
	woken, futile := false, 0
	for !h.loop.ending.Load() {
		line.Doze()
		took, worked := h.work(cpu)
		if h.loop.ending.Load() {
			break // close may have switched the line off before Doze
		}
		now := time.Since(h.began)
		switch {
		case worked:
			futile = 0
			h.last.Store(int64(now))
			h.loop.wake()
		case woken && took:
			if futile++; futile >= mostFutile {
				woken, futile = false, 0
				line.Pause(futilePause)
				continue
			}
		}
		if now-time.Duration(h.last.Load()) < busyWait {
			woken = line.Wait(mostWait)
		} else {
			woken = line.WaitLong(mostWait)
		}
	}
	line.Off()
}

// await calls woken whenever somebody has woken a line: a program of the device, or its peer, that begins a stream, or a
// thread of a program that is about to sleep.
func (h *helpers) await(line assist.Line, woken func()) {
	for !h.loop.ending.Load() {
		line.Doze()
		if h.loop.ending.Load() {
			break // see run
		}
		if line.WaitLong(mostWait) {
			woken()
		}
	}
}

// completed wakes the threads of programs that sleep until the device has done work.
func (h *helpers) completed() {
	until := h.wakeUntil.Load()
	h.page.Completed(until != 0 && int64(time.Since(h.began)) < until)
}

// takeOver makes the own thread take over.
func (h *helpers) takeOver(why assist.Polling) {
	for had := h.asked.Load(); had < uint32(why) && !h.asked.CompareAndSwap(had, uint32(why)); had = h.asked.Load() {
	}
	if h.page.Polling() == assist.No {
		h.loop.signal()
	}
}

// work does the device's work until there is none, or for mostWork. It reports whether it had the turn, and whether
// there was work.
func (h *helpers) work(cpu int) (took, worked bool) {
	if !h.turn.take() {
		return false, false
	}
	began, ran := time.Now(), time.Duration(0)
	memory := true // the own thread waits for the sockets, and asks for a look at them
	for {
		h.page.Work(true)
		for idle := 0; idle < 2; {
			did, _, _ := h.loop.lookInTurn(memory)
			if !did {
				if idle++; idle == 1 {
					h.page.Work(false) // the next look finds what nobody woke a helper for
				}
				continue
			}
			if idle == 1 {
				h.page.Work(true)
			}
			idle, worked = 0, true
			if time.Since(began) < mostWork {
				continue
			}
			// Another helper may have had the processor meanwhile, so the time that this one ran counts.
			if now := threadTime(); ran == 0 {
				ran = now
			} else if now-ran > mostWork {
				h.page.Work(false)
				h.turn.leave() // the own thread looks now
				h.takeOver(assist.Beside)
				h.loop.kick(cpu)
				return true, true
			}
		}
		done := h.turn.give()
		// Whoever is woken here may have answered before this thread goes on.
		if !h.loop.kick(cpu) && done {
			return true, worked
		}
		if done && !h.turn.take() {
			return true, worked
		}
		memory = done
	}
}

// threadTime returns how long the calling thread has run: never 0, which is no time for its caller.
func threadTime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) != nil {
		return 1
	}
	return time.Duration(ts.Nano())
}

// helpersWork decides whether helpers do the device's work, so that its own thread has only to attend, or whether the own
// thread polls. The own thread calls it before each look. When the thread stops polling, helpersWork returns false once
// more: programs woke nobody until then, and the look that follows finds their last doorbells.
func (h *helpers) helpersWork(t *thread, now time.Time) bool {
	if h.asked.Load() != 0 {
		h.pollWhy = max(h.pollWhy, assist.Polling(h.asked.Swap(0)))
		h.pollUntil = now.Add(streamLasts)
	}
	had := h.page.Polling()
	if had != assist.No {
		if t.streaming && now.Sub(t.checked) < 2*checkEvery {
			h.pollUntil = now.Add(2 * checkEvery)
		}
		h.lookForRoom(t, now)
	}
	polls := assist.No
	if now.Before(h.pollUntil) {
		polls = max(h.pollWhy, assist.Beside)
	} else {
		h.pollWhy = assist.No
	}
	if polls != had {
		h.page.Poll(polls)
		return false
	}
	return polls == assist.No && now.Sub(h.began)-time.Duration(h.last.Load()) < attended
}

// listen makes programs wake helpers again. The own thread calls it before it sleeps; a look follows.
func (h *helpers) listen() {
	h.pollWhy, h.pollUntil = assist.No, time.Time{}
	h.page.Poll(assist.No)
}

// lookForRoom makes the own thread poll while there is room for it: a processor without a program of the device, of
// which other threads took less than a quarter of the time since it looked last.
func (h *helpers) lookForRoom(t *thread, now time.Time) {
	past := now.Sub(h.observed)
	if past < observeEvery || t.stat == nil {
		return
	}
	const tick = 10 * time.Millisecond // USER_HZ
	used, crowded := t.locatePrograms()
	empty := without(t.allowed, used)
	idle, ran := h.idle, h.ran
	h.observed, h.idle = now, idleTimes()
	h.ran, _, _ = t.schedstat()
	if crowded >= 0 || used.Count() == 0 || past > 2*observeEvery {
		return
	}
	for p := range idle {
		others := past - time.Duration(h.idle[p]-idle[p])*tick
		if p == assist.Processor() {
			others -= h.ran - ran
		}
		if empty.IsSet(p) && others < past/4 {
			h.pollUntil = now.Add(past + checkEvery) // until the next look
			return
		}
	}
}

// idleTimes returns how long each processor has been idle, from /proc/stat.
func idleTimes() (idle [assist.Processors + 1]int64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return idle
	}
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) < 5 || !bytes.HasPrefix(f[0], []byte("cpu")) {
			break // other lines follow
		}
		if p, err := strconv.Atoi(string(f[0][3:])); err == nil && p < len(idle) {
			idle[p], _ = strconv.ParseInt(string(f[4]), 10, 64)
		}
	}
	return idle
}

// attend is what the device's own thread does while helpers do the work: it naps, looks once, and decides whether it
// polls from now on: beside the programs (lookForRoom), for a stream, or for a program without the library.
func (h *helpers) attend(t *thread) {
	l := h.loop
	l.pause(watchNap)
	if !h.turn.take() {
		return
	}
	l.lookInTurn(false)
	l.looking.Lock()
	rang := l.rang
	l.looking.Unlock()
	for !h.turn.give() {
		l.lookInTurn(false)
	}
	l.kick(assist.Processor())
	now := time.Now()
	h.lookForRoom(t, now)
	if past := now.Sub(h.counted); past >= checkEvery {
		total := l.bytes()
		if past < 2*checkEvery && total-h.total >= wideStream {
			h.pollUntil = now.Add(streamLasts)
		}
		h.counted, h.total = now, total
	}
	if !rang {
		h.missed, h.unhelped = 0, firstUnhelped
	} else if h.missed++; h.missed >= mostMissed {
		h.missed = 0
		h.pollUntil = now.Add(h.unhelped)
		h.unhelped = min(2*h.unhelped, longUnhelped)
	}
}
