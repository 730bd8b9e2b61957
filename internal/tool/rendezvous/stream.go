package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// A stream has streamRecvs receive requests of streamMessage bytes each. If a peer sends more
// messages before they are read, its device retries them without limit (RNR).
const (
	streamRecvs   = 8
	streamMessage = 1024
)

// keepAlive is the time between two checks whether the peer still answers. They are needed
// because a process that is killed sends no disconnect request.
const keepAlive = 2 * time.Second

// goodbye is how long Close waits for the peer to confirm the end.
const goodbye = time.Second

// stream is a connection of package cm as a net.Conn. The bytes go as SENDs of at
// most streamMessage bytes, so that a program on librdmacm can be the peer.
type stream struct {
	conn           *cm.Conn
	pd             *verbs.PD
	sends, recvs   *verbs.CQ
	qp             *verbs.QP
	in, out        *verbs.MR
	reads, writes  deadline
	end            context.CancelFunc // ends the keep-alive goroutine
	keeper         sync.WaitGroup
	once           sync.Once
	writing        sync.Mutex // guards broken, out and the sends
	broken         error      // why a SEND did not complete, after which its buffer may still be in use
	reading        sync.Mutex // guards the following fields
	at, next, left int        // receive request that is being read; its unread bytes
}

// newStream makes a stream on a device, with a QP that can receive and is not
// connected.
func newStream(dev *verbs.Device) (s *stream, err error) {
	s = &stream{end: func() {}}
	defer func() {
		if err != nil {
			s.free()
		}
	}()
	s.reads.set(time.Time{})
	s.writes.set(time.Time{})
	if s.pd, err = dev.NewPD(); err != nil {
		return s, err
	}
	if s.sends, err = dev.NewCQ(2); err != nil {
		return s, err
	}
	if s.recvs, err = dev.NewCQ(streamRecvs); err != nil {
		return s, err
	}
	if s.in, err = s.pd.Register(make([]byte, streamRecvs*streamMessage), rdma.LocalWrite); err != nil {
		return s, err
	}
	if s.out, err = s.pd.Register(make([]byte, streamMessage), 0); err != nil {
		return s, err
	}
	if s.qp, err = s.pd.NewQP(verbs.QPAttr{SendCQ: s.sends, RecvCQ: s.recvs, MaxSendWR: 2, MaxRecvWR: streamRecvs}); err != nil {
		return s, err
	}
	// RemoteWrite admits the peer's empty WRITEs (keep). It opens no memory: no region grants it.
	if err = s.qp.Init(rdma.LocalWrite | rdma.RemoteWrite); err != nil {
		return s, err
	}
	for i := range streamRecvs {
		if err = s.listen(i); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *stream) listen(i int) error {
	_, err := s.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []rdma.SGE{s.in.SGE(i*streamMessage, streamMessage)}})
	return err
}

// begin makes the stream of a connection that was just made.
func (s *stream) begin(c *cm.Conn) net.Conn {
	s.conn = c
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	s.keeper.Go(func() { s.keep(ctx) })
	return s
}

// keep sends a WRITE of 0 bytes every keepAlive, which the peer's QP acknowledges without its
// program noticing. If the peer does not answer, the QP goes to the error state, which ends
// Read and Write.
func (s *stream) keep(ctx context.Context) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.conn.Done():
			return
		}
		s.writing.Lock()
		err := s.broken
		if err == nil {
			err = s.complete(s.qp.Start().Signaled().Write(0, 0), func() context.Context { return ctx })
		}
		s.writing.Unlock()
		if err != nil {
			return
		}
	}
}

// complete posts a request and waits for its completion, as wait does.
func (s *stream) complete(c verbs.Chain, limit func() context.Context) error {
	if err := c.Complete(); err != nil {
		return err
	}
	var wc [1]rdma.WC
	err := wait(s.sends, wc[:], limit)
	switch {
	case err != nil:
	case wc[0].Status == rdma.StatusWRFlushErr:
		err = s.flushed()
	case wc[0].Status != rdma.StatusSuccess:
		err = fmt.Errorf("the connection to %v is lost: %v", s.conn.RemoteAddr(), wc[0].Status)
	}
	s.broken = err
	return err
}

// errFlushed is the error of a request that the end of the connection has flushed. A connection
// that fails completes the one request that is outstanding with another status.
var errFlushed = errors.New("has ended")

func (s *stream) flushed() error {
	return fmt.Errorf("the connection to %v: %w", s.conn.RemoteAddr(), errFlushed)
}

// endedByPeer reports whether the peer has disconnected, after a request was flushed.
func (s *stream) endedByPeer() bool {
	select {
	case <-s.conn.Done(): // closed a moment after the flush
	case <-time.After(goodbye):
		return false
	}
	return s.conn.Err() == nil && !s.writes.ended()
}

// wait waits for a completion. limit returns the context of the current deadline. When that
// context is cancelled because the deadline has changed, wait calls limit again and goes on.
// wait returns os.ErrDeadlineExceeded after the deadline, and net.ErrClosed after deadline.stop.
func wait(cq *verbs.CQ, wc []rdma.WC, limit func() context.Context) error {
	for {
		ctx := limit()
		_, err := cq.Wait(ctx, wc)
		switch {
		case err == nil, ctx.Err() == nil:
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return os.ErrDeadlineExceeded
		case limit() == ctx:
			return net.ErrClosed
		}
	}
}

// Write sends p and returns when the peer's device has all of it. If the peer ends the
// connection before it has acknowledged a message, Write succeeds, as with TCP, and the next
// Write fails: the peer may have taken the message, and its last words can still be read.
// After an error the stream is broken.
func (s *stream) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for n < len(p) {
		if s.broken != nil {
			return n, s.broken
		}
		select {
		case <-s.conn.Done():
			return n, s.flushed()
		default:
		}
		m := copy(s.out.Bytes(), p[n:])
		err := s.complete(s.qp.Start().Signaled().Send().SGE(s.out.SGE(0, m)), s.writes.context)
		if err != nil && !(errors.Is(err, errFlushed) && s.endedByPeer()) {
			return n, err
		}
		n += m
	}
	return n, nil
}

// Read returns io.EOF when either side has ended the connection, and also when it has failed
// because the peer does not answer.
func (s *stream) Read(p []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for s.left == 0 {
		var wc [1]rdma.WC
		if err := wait(s.recvs, wc[:], s.reads.context); err != nil {
			return 0, err
		}
		if wc[0].Status != rdma.StatusSuccess {
			return 0, io.EOF
		}
		s.at, s.next, s.left = int(wc[0].ID), 0, int(wc[0].ByteLen)
		if s.left == 0 {
			if err := s.listen(s.at); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, s.in.Bytes()[s.at*streamMessage+s.next:][:s.left])
	s.next, s.left = s.next+n, s.left-n
	if s.left == 0 {
		if err := s.listen(s.at); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Close disconnects and frees the objects on the device.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.end()
		s.reads.stop()
		s.writes.stop()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = s.conn.Close() // fails if the peer does not answer, which does not matter any more
		}()
		select {
		case <-closed:
		case <-time.After(goodbye):
		}
		s.keeper.Wait()
		s.free()
	})
	return nil
}

// free destroys the objects on the device.
func (s *stream) free() {
	if s.qp != nil {
		_ = s.qp.Close()
	}
	for _, mr := range []*verbs.MR{s.in, s.out} {
		if mr != nil {
			_ = mr.Close()
		}
	}
	for _, cq := range []*verbs.CQ{s.sends, s.recvs} {
		if cq != nil {
			_ = cq.Close()
		}
	}
	if s.pd != nil {
		_ = s.pd.Close()
	}
}

func (s *stream) LocalAddr() net.Addr  { return s.conn.LocalAddr() }
func (s *stream) RemoteAddr() net.Addr { return s.conn.RemoteAddr() }

func (s *stream) SetDeadline(t time.Time) error {
	s.reads.set(t)
	s.writes.set(t)
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error  { s.reads.set(t); return nil }
func (s *stream) SetWriteDeadline(t time.Time) error { s.writes.set(t); return nil }

// deadline is a deadline that may change while Read or Write waits.
type deadline struct {
	mu      sync.Mutex // guards the following fields
	ctx     context.Context
	cancel  context.CancelFunc
	stopped bool
}

func (d *deadline) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx
}

// set changes the deadline; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	old := d.cancel
	if t.IsZero() {
		d.ctx, d.cancel = context.WithCancel(context.Background())
	} else {
		d.ctx, d.cancel = context.WithDeadline(context.Background(), t)
	}
	if old != nil {
		old()
	}
}

// ended reports whether stop was called.
func (d *deadline) ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// stop ends the current wait and all later ones.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.cancel()
}
