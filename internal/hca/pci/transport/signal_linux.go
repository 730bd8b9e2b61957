package transport

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Signal wakes a client through a descriptor that the client has passed: an eventfd, or a socket as
// User-mode Linux has it. Both processes share the flags of the descriptor, so that O_NONBLOCK
// cannot be relied on: a client can clear it and fill the counter or the socket. Send does not block
// for longer than it takes to detect that.
//
// A nil Signal wakes nobody. A Signal is not safe for concurrent use.
type Signal struct {
	fd     int
	socket bool

	full  bool        // the client has filled the counter: the signal is off
	watch *time.Timer // calls free while a write blocks
	sent  atomic.Bool // the write has returned
	freed chan bool   // from free: the counter was full
}

// stuck is the time after which a write is examined. It only has to be longer than most writes.
const stuck = 100 * time.Millisecond

// one has the 8 bytes that Send writes. They add 1 to the counter of an eventfd.
var one = [8]byte{1}

// TakeSignal returns descriptor i as a Signal, which belongs to the caller from then on. EINVAL:
// it is neither an eventfd nor a socket.
func (s *Socket) TakeSignal(i int) (*Signal, error) {
	kind, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", s.FDs[i]))
	if err != nil {
		return nil, err
	}
	socket := strings.HasPrefix(kind, "socket:")
	if !socket && kind != "anon_inode:[eventfd]" {
		return nil, failure.New("take a descriptor", syscall.EINVAL, "%s: must be an eventfd or a socket", kind)
	}
	fd, err := s.Take(i)
	if err != nil {
		return nil, err
	}
	g := &Signal{fd: fd, socket: socket, freed: make(chan bool, 1)}
	g.watch = time.AfterFunc(time.Hour, g.free)
	g.watch.Stop()
	return g, nil
}

// Send wakes the client. A full socket, or a full counter, has enough to wake up from.
func (g *Signal) Send() {
	switch {
	case g == nil || g.full:
	case g.socket:
		// Unlike write, this call has flags of its own.
		unix.Send(g.fd, one[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	default:
		g.sent.Store(false)
		g.watch.Reset(stuck)
		unix.Write(g.fd, one[:])
		g.sent.Store(true)
		if !g.watch.Stop() {
			g.full = <-g.freed
		}
	}
}

// free ends a write that blocks: it empties the counter, which only a hostile client fills.
func (g *Signal) free() {
	full := false
	for ; !g.sent.Load(); time.Sleep(time.Millisecond) {
		p := []unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); err == nil && n == 0 {
			full = true
			ReadEventfd(g.fd)
		}
	}
	g.freed <- full
}

// Close closes the descriptor.
func (g *Signal) Close() {
	if g != nil {
		unix.Close(g.fd)
	}
}

// ReadEventfd empties the counter of an eventfd of a client. It does not block, whatever flags
// the client has set. EAGAIN: the counter is empty.
func ReadEventfd(fd int) error {
	var b [8]byte
	_, err := unix.Preadv2(fd, [][]byte{b[:]}, -1, unix.RWF_NOWAIT)
	return err
}
