package nbd

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Device is what is served. Any number of goroutines call its methods.
type Device interface {
	io.ReaderAt
	io.WriterAt

	// Size returns the number of bytes, which does not change.
	Size() int64

	// Zero makes n bytes from off on zeros. It is called if Options.Zeroes is set.
	Zero(off, n int64) error

	// Flush puts everything that was written on stable storage.
	Flush() error
}

// Options tune a server. The zero value serves a device for reading and writing, without zeroing.
type Options struct {
	ReadOnly  bool
	Zeroes    bool   // offer trim and write zeroes; both make zeros
	Preferred uint32 // bytes, a power of two: a client's requests are fastest in multiples of it; 0: 4096

	// Failed is called with the error of each connection that did not end in good order. nil: the
	// errors are dropped.
	Failed func(peer net.Addr, err error)
}

// Serve serves clients of l until the context ends, executes what they have asked for until then,
// closes l and returns the context's cause. An error of l ends it, too.
func Serve(ctx context.Context, l net.Listener, d Device, o Options) error {
	if o.Preferred == 0 {
		o.Preferred = 4096
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var clients sync.WaitGroup
	room := make(chan struct{}, maxConnections)
	for {
		room <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			l.Close()
			clients.Wait()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		clients.Go(func() {
			defer func() { <-room }()
			defer c.Close()
			s := &session{conn: c, device: d, options: &o}
			// A client that is idle or in its handshake ends at once, one with requests after them.
			stop := context.AfterFunc(ctx, func() { s.stop() })
			defer stop()
			err := s.serve()
			gone := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) // the client has seen enough
			if err != nil && !gone && ctx.Err() == nil && o.Failed != nil {
				o.Failed(c.RemoteAddr(), err)
			}
		})
	}
}

// session is the conversation with a client.
type session struct {
	conn       net.Conn
	device     Device
	options    *Options
	structured bool

	mu      sync.Mutex // guards the following fields and the deadline
	stopped bool

	sending sync.Mutex // of replies

	held held
}

// stop ends the reading of requests.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	_ = s.conn.SetWriteDeadline(time.Now().Add(patience)) // a client that takes no replies
}

// within bounds the time until a client has sent what is read next; 0 lifts the bound.
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
	var running sync.WaitGroup
	defer running.Wait()
	return s.requests(&running)
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

// held bounds the requests that are being executed.
type held struct {
	mu      sync.Mutex // guards the following fields
	changed *sync.Cond
	running int
	bytes   int
}

func (h *held) init() { h.changed = sync.NewCond(&h.mu) }

// enter waits until there is room for a request with n bytes.
func (h *held) enter(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.running == maxRunning || h.bytes+n > maxHeld {
		h.changed.Wait()
	}
	h.running++
	h.bytes += n
}

func (h *held) leave(n int) {
	h.mu.Lock()
	h.running--
	h.bytes -= n
	h.mu.Unlock()
	h.changed.Signal()
}
