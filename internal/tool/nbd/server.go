package nbd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

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

	// Flush returns when all data that was written before is on stable storage.
	Flush() error
}

// Options tune a server. The zero value serves a device for reading and writing, without zeroing.
type Options struct {
	ReadOnly  bool
	Zeroes    bool   // offer trim and write zeroes, both of which call Device.Zero
	Preferred uint32 // preferred block size in bytes, a power of two, which clients are told; 0: 4096

	// Failed, if not nil, is called with the error of each connection that ended because of one.
	Failed func(peer net.Addr, err error)
}

// Serve serves clients of l until the context ends. It then closes l, waits for the requests that
// are being executed, and returns the context's cause. An error of l ends it in the same way and is
// returned.
func Serve(ctx context.Context, l net.Listener, d Device, o Options) error {
	if o.Preferred == 0 {
		o.Preferred = 4096
	}
	serving, end := context.WithCancel(ctx)
	defer end()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var clients sync.WaitGroup
	room := make(chan struct{}, maxConnections)
	for {
		room <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			l.Close()
			end()
			clients.Wait()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		clients.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			s := &session{conn: c, in: bufio.NewReader(c), device: d, options: &o}
			// When the context ends, a session in its handshake or without requests ends at once,
			// and any other session after its requests.
			stop := context.AfterFunc(serving, func() { s.stop() })
			defer stop()
			err := s.serve()
			gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) // the client closed the connection
			if err != nil && !gone && serving.Err() == nil && o.Failed != nil {
				o.Failed(c.RemoteAddr(), err)
			}
		})
	}
}

// session is the conversation with a client.
type session struct {
	conn       net.Conn
	in         *bufio.Reader // of conn
	device     Device
	options    *Options
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
	_ = s.conn.SetWriteDeadline(time.Now().Add(patience)) // for a client that does not read its replies
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

// serve talks to the client until it disconnects.
func (s *session) serve() error {
	s.within(patience)
	ready, err := s.handshake()
	if err != nil || !ready {
		return err
	}
	s.held.init()
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
	mu      sync.Mutex // guards the following fields
	changed *sync.Cond
	running int
	bytes   int
}

func (h *held) init() { h.changed = sync.NewCond(&h.mu) }

// enter waits until a request with n bytes fits within maxRunning and maxHeld, and counts it. It
// reports whether the request is the only one.
func (h *held) enter(n int) (alone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.running == maxRunning || h.bytes+n > maxHeld {
		h.changed.Wait()
	}
	h.running++
	h.bytes += n
	return h.running == 1
}

func (h *held) leave(n int) {
	h.mu.Lock()
	h.running--
	h.bytes -= n
	h.mu.Unlock()
	h.changed.Signal()
}
