package nbd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Device is the block device that a server serves. Its methods are called by several goroutines at
// the same time.
type Device interface {
	io.ReaderAt
	io.WriterAt

	// Size returns the size in bytes, which must not change.
	Size() int64

	// Zero writes n zeros from off on. It is called only if Options.Zeroes is set.
	Zero(off, n int64) error

	// Trim says that a range is not needed any more; its content may change or stay. It is called
	// only if Options.Zeroes is set.
	Trim(off, n int64) error

	// Flush returns when all data that was written before is on stable storage.
	Flush() error
}

// Options tune a server. The zero value serves a device for reading and writing, without zeroing.
type Options struct {
	ReadOnly bool
	Zeroes   bool // offer trim and write zeroes

	// Failed, if not nil, is called with the error of each connection that ended because of one.
	Failed func(peer net.Addr, err error)
}

// errFull is the error of a connection beyond maxConnections.
var errFull = fmt.Errorf("it is refused: the server has %d clients", maxConnections)

// Serve serves the clients of some listeners until the context ends. It then closes the listeners, waits
// for the requests that are being executed, and returns the context's cause. An error of a
// listener ends it in the same way and is returned.
func Serve(ctx context.Context, d Device, o Options, listeners ...net.Listener) error {
	serving, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := context.AfterFunc(serving, func() {
		for _, l := range listeners {
			l.Close()
		}
	})
	defer stop()
	s := &server{device: d, options: &o, serving: serving, room: make(chan struct{}, maxConnections), refusals: make(chan struct{}, maxRefusals), shared: semaphore.NewWeighted(maxShared)}
	var accepting sync.WaitGroup
	for _, l := range listeners {
		accepting.Go(func() { end(s.accept(l)) })
	}
	accepting.Wait()
	s.clients.Wait()
	return context.Cause(serving)
}

// server is a call of Serve.
type server struct {
	device         Device
	options        *Options
	serving        context.Context // ends with the server
	room, refusals chan struct{}   // have an element for each client that is served, or refused
	clients        sync.WaitGroup

	shared  *semaphore.Weighted // the bytes of maxShared
	waiting atomic.Int32        // the clients that wait for some of them
}

// accept starts a session for every client of a listener. It returns the listener's error.
func (s *server) accept(l net.Listener) error {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE): // until another file is closed
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-s.serving.Done():
				return err
			}
		default:
			return err
		}
		held, full := s.room, false
		select {
		case held <- struct{}{}:
		default:
			held, full = s.refusals, true
			select {
			case held <- struct{}{}:
			default:
				c.Close()
				s.ended(c, errFull)
				continue
			}
		}
		s.clients.Go(func() {
			defer func() { <-held }()
			defer c.Close()
			s.ended(c, s.serve(c, full))
		})
	}
}

// serve serves a client, or tells it that it is refused.
func (s *server) serve(c net.Conn, full bool) error {
	session := &session{server: s, conn: c, in: bufio.NewReader(c), full: full}
	// When the context ends, a session in its handshake or without requests ends at once,
	// and any other session after its requests.
	stop := context.AfterFunc(s.serving, session.stop)
	defer stop()
	return session.serve()
}

// ended reports the error of a connection, unless the client or the server has ended it.
func (s *server) ended(c net.Conn, err error) {
	gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) // the client closed the connection
	if err != nil && !gone && s.serving.Err() == nil && s.options.Failed != nil {
		s.options.Failed(c.RemoteAddr(), err)
	}
}

// session is the conversation with a client.
type session struct {
	server     *server
	conn       net.Conn
	in         *bufio.Reader // of conn
	full       bool          // the client is one too many
	structured bool

	mu      sync.Mutex // guards the following fields and the deadline
	stopped bool

	sending sync.Mutex // held while a reply or a chunk is sent

	held held
	pool pool
}

// stop ends the reading of requests, and bounds the time for the replies to the others.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	_ = s.conn.SetWriteDeadline(time.Now().Add(grace)) // for a client that does not read its replies
}

// within sets the time within which the following reads of the connection must be complete; 0
// means without limit.
func (s *session) within(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if d == 0 {
		_ = s.conn.SetReadDeadline(time.Time{})
	} else {
		_ = s.conn.SetReadDeadline(time.Now().Add(d))
	}
}

// sendWithin sets the time within which the next write must be complete, and reports whether it may.
func (s *session) sendWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		_ = s.conn.SetWriteDeadline(time.Now().Add(d))
	}
	return !s.stopped
}

// serve talks to the client until it disconnects.
func (s *session) serve() error {
	if s.full {
		s.within(grace)
		_ = s.conn.SetWriteDeadline(time.Now().Add(grace))
	} else {
		s.within(patience)
	}
	ready, err := s.handshake()
	if err != nil || !ready {
		return err
	}
	s.held.init(s.server)
	s.pool.next = make(chan func())
	defer s.pool.close()
	return s.requests()
}

// pool executes a connection's requests in goroutines that it keeps. The stack of a new goroutine
// would grow in several steps in each request, which is an eighth of the time of a read.
type pool struct {
	next    chan func()
	started int
	running sync.WaitGroup
}

// run calls f in a goroutine. It waits for one if maxRunning are busy.
func (p *pool) run(f func()) {
	select {
	case p.next <- f:
		return
	default:
	}
	if p.started == maxRunning {
		p.next <- f
		return
	}
	p.started++
	p.running.Go(func() {
		for f != nil {
			f()
			f = <-p.next
		}
	})
}

// close waits for the goroutines and ends them.
func (p *pool) close() {
	close(p.next)
	p.running.Wait()
}

// protocolError returns the protocol's error for an error of the device.
func protocolError(err error) uint32 {
	switch failure.Errno(err, syscall.EIO) {
	case syscall.EPERM, syscall.EACCES, syscall.EROFS:
		return ePERM
	case syscall.EINVAL:
		return eINVAL
	case syscall.ENOMEM:
		return eNOMEM
	case syscall.ENOSPC, syscall.EFBIG, syscall.EDQUOT:
		return eNOSPC
	}
	return eIO
}

// held counts the requests of a connection that are being executed, and their bytes.
type held struct {
	server  *server
	mu      sync.Mutex // guards the following fields
	changed *sync.Cond
	running int
	bytes   int
	shared  int // of bytes, those that maxShared counts
}

func (h *held) init(s *server) { h.server, h.changed = s, sync.NewCond(&h.mu) }

// enter waits until a request with n bytes fits within maxRunning, maxHeld and maxShared, and counts it. It
// reports whether the request is the only one. An error says that the server ends; leave is due in any case.
func (h *held) enter(n int) (alone bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.running == maxRunning || h.bytes+n > maxHeld {
		h.changed.Wait()
	}
	h.running++
	h.bytes += n
	alone = h.running == 1
	more := max(h.bytes-ownHeld, 0) - h.shared
	if more <= 0 {
		return alone, nil
	}
	if !h.server.shared.TryAcquire(int64(more)) {
		h.mu.Unlock() // for the requests that end meanwhile
		h.server.waiting.Add(1)
		err = h.server.shared.Acquire(h.server.serving, int64(more))
		h.server.waiting.Add(-1)
		h.mu.Lock()
	}
	if err == nil {
		h.shared += more
		h.share()
	}
	return alone, err
}

// share gives back to the other connections what the requests that are left do not need. The caller holds mu.
func (h *held) share() {
	if less := h.shared - max(h.bytes-ownHeld, 0); less > 0 {
		h.shared -= less
		h.server.shared.Release(int64(less))
	}
}

func (h *held) leave(n int) {
	h.mu.Lock()
	h.running--
	h.bytes -= n
	h.share()
	h.mu.Unlock()
	h.changed.Signal()
}
