//go:build linux

package assist

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	size = 4096
	line = 64 // a cache line: the words of two processors do not share one

	// Processors is the number of processors that a page has lines for: those with numbers below it.
	Processors = size/line - 1
)

// The values of a line.
const (
	off    = 0 // nobody waits, or kicks are not wanted
	dozing = 1 // the helper sleeps, or looks for work once more before it does
)

// A Page is a page of helpers, of this process or another one.
type Page struct {
	memory []byte
	file   *os.File // a descriptor for reading; nil: another process's page
}

// New makes the page of a device. All its lines are off.
func New() (*Page, error) {
	fd, err := unix.MemfdCreate("softmkey-assist", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, size); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// This mapping stays the only one that can write, whatever others do with the descriptor.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	var file *os.File
	if err == nil {
		file, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		unix.Munmap(memory)
		return nil, err
	}
	return &Page{memory, file}, nil
}

// Open maps the page of another process for reading.
func Open(file *os.File) (*Page, error) {
	fd := int(file.Fd())
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case err != nil:
		return nil, err
	case seals&unix.F_SEAL_SHRINK == 0 || st.Size != size:
		return nil, fmt.Errorf("the page of helpers is not a sealed memfd of %d bytes", size)
	}
	memory, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Page{memory: memory}, nil
}

// File returns a descriptor of this process's page, for reading.
func (p *Page) File() *os.File { return p.file }

// Close unmaps the page. No other method may be called afterwards. The page may be nil.
func (p *Page) Close() {
	if p == nil {
		return
	}
	unix.Munmap(p.memory)
	if p.file != nil {
		p.file.Close()
	}
}

// Kick wakes the helper of a processor, which should be the caller's, if the helper sleeps. It does not block.
func (p *Page) Kick(cpu int) {
	if cpu >= Processors || p.polls().Load() != 0 {
		return
	}
	p.Line(cpu).wake()
}

// A Polling is why the device's own thread polls, so that nobody needs to wake helpers.
type Polling uint32

const (
	No     Polling = 0 // it does not
	Beside Polling = 1 // it has room beside the programs, or a stream of others' packets
	Stream Polling = 2 // a program of the device has a stream of requests
)

// Poll says whether the device's own thread polls.
func (p *Page) Poll(why Polling) {
	w := p.polls()
	for had := w.Load(); !w.CompareAndSwap(had, had&working|uint32(why)); had = w.Load() {
	}
}

// Polling returns why the device's own thread polls, as its process has said by Poll.
func (p *Page) Polling() Polling { return Polling(p.polls().Load() &^ working) }

// working is a bit of the word polls: a helper works, and looks once more when it has cleared the bit.
const working = 1 << 8

// Work says whether a helper works, so that nobody needs to wake another one.
func (p *Page) Work(works bool) {
	if works {
		p.polls().Or(working)
	} else {
		p.polls().And(^uint32(working))
	}
}

// polls is a word of the first line, which belongs to no processor. If it is not 0, nobody wakes helpers.
func (p *Page) polls() *atomic.Uint32 { return p.word(0) }

// word returns the word at an offset in bytes.
func (p *Page) word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&p.memory[at])) }

// Streams returns the lines of the threads that are woken when a stream begins, and every few milliseconds as long as
// it goes on: a stream of requests, by the program, and one of packets, by the device that sends them.
func (p *Page) Streams() (program, peer Line) { return Line{p.word(4)}, Line{p.word(8)} }

// Sleepers returns the line of the thread that is woken when threads of programs sleep, and every few milliseconds as
// long as they do.
func (p *Page) Sleepers() Line { return Line{p.word(12)} }

// Completed counts the device's work. If there may be threads of programs that sleep until the count changes, it wakes
// them.
func (p *Page) Completed(sleepers bool) {
	w := p.word(16)
	w.Add(1)
	if sleepers {
		futex(w, wake, math.MaxInt32, nil)
	}
}

// TellStream wakes the thread of streams of packets.
func (p *Page) TellStream() {
	_, peer := p.Streams()
	peer.wake()
}

// Line is a helper's line of its page.
type Line struct{ w *atomic.Uint32 }

// wake wakes the helper if it dozes.
func (l Line) wake() {
	if l.w.Load() == dozing {
		futex(l.w, wake, 1, nil)
	}
}

// Line returns the line of a processor. cpu is less than Processors.
func (p *Page) Line(cpu int) Line { return Line{p.word(line * (cpu + 1))} }

// Doze announces that the helper is going to sleep. It looks for work once more before it calls Wait.
func (l Line) Doze() { l.w.Store(dozing) }

// Off switches the line off, so that nobody wakes its helper any more, and ends the helper's Wait.
func (l Line) Off() {
	l.w.Store(off)
	futex(l.w, wake, 1, nil)
}

// Pause switches the line off and sleeps for d, in which nobody wakes the helper.
func (l Line) Pause(d time.Duration) {
	l.w.Store(off)
	ts := unix.NsecToTimespec(int64(d))
	futex(l.w, wait, off, &ts)
}

// Wait sleeps after Doze until somebody wakes the helper, for d at most, and reports whether somebody did. It is
// a system call of which the Go scheduler is not notified: that would cost its monitor a wake-up for each. So
// d bounds how long the caller keeps a processor of the Go scheduler. A signal ends the call because it has a
// timeout, so that the scheduler can stop the world.
func (l Line) Wait(d time.Duration) (woken bool) {
	ts := unix.NsecToTimespec(int64(d))
	return futex(l.w, wait, dozing, &ts) == 0
}

// WaitLong is Wait for a helper that has had nothing to do for a while. The scheduler is notified. It has a limit, too:
// whoever maps the page can move its waiters to another word (FUTEX_REQUEUE), where Off does not wake them.
func (l Line) WaitLong(d time.Duration) (woken bool) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(l.w)), wait, dozing, uintptr(unsafe.Pointer(&ts)), 0, 0)
	return errno == 0
}

// The operations of futex(2), <linux/futex.h>.
const (
	wait = 0 // FUTEX_WAIT
	wake = 1 // FUTEX_WAKE
)

// Processor returns the number of the processor that the caller runs on.
func Processor() int {
	var cpu uint32
	unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	return int(cpu)
}

// futex is the system call, without the Go scheduler.
func futex(w *atomic.Uint32, op int, value uint32, timeout *unix.Timespec) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), uintptr(op), uintptr(value), uintptr(unsafe.Pointer(timeout)), 0, 0)
	return errno
}
