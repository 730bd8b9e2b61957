//go:build linux

package uverbs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// channel is a queue of events for a program. The program holds the read end of a
// pipe, so its polls and reads do not involve this package.
type channel struct {
	size int  // bytes of an event
	pid  int  // the process whose quota of descriptors counts the pipe
	devx bool // the channel carries events of DEVX; guarded by the File's evMu

	mu     sync.Mutex
	r, w   *os.File
	closed bool
	// backlog holds the events that did not fit into the pipe, up to mostBacklog bytes. A
	// program that does not read its events loses later ones.
	backlog []byte
	// filling: a goroutine moves the backlog into the pipe as the program reads. filled waits for it.
	filling bool
	filled  sync.WaitGroup
}

const (
	compEventSize  = 8  // struct ib_uverbs_comp_event_desc
	asyncEventSize = 16 // struct ib_uverbs_async_event_desc
	mostBacklog    = 1 << 20
)

func newChannel(size, pid int) (*channel, error) {
	if err := descriptors.take("event channel", pid, 2); err != nil {
		return nil, err
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		descriptors.give(pid, 2)
		return nil, err
	}
	return &channel{size: size, pid: pid, r: os.NewFile(uintptr(p[0]), "events"), w: os.NewFile(uintptr(p[1]), "events")}, nil
}

// put queues an event and increments count, unless the event is lost. take decrements it for each
// unread event.
func (ch *channel) put(event []byte, count *uint32) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return
	}
	if len(ch.backlog) == 0 {
		if n, err := unix.Write(int(ch.w.Fd()), event); err == nil && n == len(event) {
			*count++
			return
		}
	}
	if len(ch.backlog)+len(event) <= mostBacklog {
		*count++
		ch.backlog = append(ch.backlog, event...)
		ch.fillLocked()
	}
}

// fillLocked starts the goroutine that moves the backlog into the pipe. It ends when the backlog is
// empty or the channel is closed.
func (ch *channel) fillLocked() {
	raw, err := ch.w.SyscallConn()
	if ch.filling || err != nil {
		return
	}
	ch.filling = true
	ch.filled.Go(func() {
		raw.Write(func(fd uintptr) bool { return ch.fill(int(fd)) }) // an error: the channel is closed
	})
}

// fill moves the backlog into the pipe as far as it has room, and reports whether nothing is left.
// Writes of an event are atomic, since they are shorter than PIPE_BUF.
func (ch *channel) fill(fd int) (done bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for len(ch.backlog) > 0 && !ch.closed {
		if n, err := unix.Write(fd, ch.backlog[:ch.size]); err != nil || n != ch.size {
			return false
		}
		ch.backlog = ch.backlog[ch.size:]
	}
	ch.filling = false
	return true
}

// take removes the unread events of an object, which begin with user, and returns how many
// events the program has read. A library that destroys the object waits until the program
// has acknowledged that many.
func (ch *channel) take(user uint64, count *uint32) uint32 {
	if ch == nil {
		return 0
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.closed {
		return *count
	}
	var all []byte
	buf := make([]byte, 64*ch.size)
	for {
		n, err := unix.Read(int(ch.r.Fd()), buf)
		if n <= 0 || err != nil {
			break
		}
		all = append(all, buf[:n]...)
	}
	all = append(all, ch.backlog...)
	ch.backlog = nil
	for ; len(all) >= ch.size; all = all[ch.size:] {
		if le.Uint64(all) == user {
			*count--
			continue
		}
		ch.backlog = append(ch.backlog, all[:ch.size]...)
	}
	for len(ch.backlog) > 0 {
		if n, err := unix.Write(int(ch.w.Fd()), ch.backlog[:ch.size]); err != nil || n != ch.size {
			ch.fillLocked()
			break
		}
		ch.backlog = ch.backlog[ch.size:]
	}
	return *count
}

func (ch *channel) close() {
	ch.mu.Lock()
	closed := ch.closed
	ch.closed = true
	ch.mu.Unlock()
	if closed {
		return
	}
	// The lock is free: Close waits for the goroutine of fillLocked, which takes it.
	ch.r.Close()
	ch.w.Close()
	ch.filled.Wait()
	descriptors.give(ch.pid, 2)
}

// newEvent returns an event that carries the program's name of an object.
func newEvent(size int, user uint64, eventType uint32) []byte {
	b := make([]byte, size)
	le.PutUint64(b, user)
	if size == asyncEventSize {
		le.PutUint32(b[8:], eventType)
	}
	return b
}
