package engine

import (
	"cmp"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// scatter holds the payload of a batch of packets on its way to memory that can only be
// copied. The bytes stay in the receive buffer until the batch ends and are then written
// with one call of the Space, because a call costs as much as copying several kilobytes.
// The completions of the batch's messages are reported after the write.
//
// A scatter is used under the transport's lock of its QP. A QP has one only while bytes or
// completions wait. A nil *scatter is an empty one.
type scatter struct {
	space keydoor.Space
	vecs  []keydoor.Vec // in the order of arrival
	sides []side        // side of each of vecs
	ended []ended
	stuck error // later could not write the earlier bytes
	err   error // error of writing or reporting a batch
	fault side  // side whose memory err is about
	read  error // error of writing the data of a READ
}

// ended is a message whose receive request completes after the batch is written.
type ended struct {
	recv *RecvRequest
	done Completion
	vecs int // length of scatter.vecs when the message ended
}

var scatterPool = sync.Pool{New: func() any { return new(scatter) }}

// maxScatter is the largest number of pieces in one call of a Space (keydoor.Vec).
const maxScatter = 512

// later adds bytes for an address of a Space to the QP's scatter. They must not change until the
// batch ends. If earlier bytes cannot be written, the batch fails at its end.
func (qp *QP) later(space keydoor.Space, addr uint64, b []byte, of side) {
	s := qp.scatter
	if s == nil {
		s = scatterPool.Get().(*scatter)
		qp.scatter = s
	}
	if s.stuck == nil && (s.space != space || len(s.vecs) == maxScatter) {
		s.stuck = s.write()
	}
	if s.stuck != nil {
		return
	}
	s.space = space
	s.vecs = append(s.vecs, keydoor.Vec{Addr: addr, Buf: b})
	s.sides = append(s.sides, of)
}

// write writes the bytes to memory. After an error it may be called again.
func (s *scatter) write() error {
	if s == nil || len(s.vecs) == 0 {
		return nil
	}
	if err := s.space.WriteV(s.vecs); err != nil {
		return err
	}
	s.forget()
	for i := range s.ended {
		s.ended[i].vecs = 0
	}
	return nil
}

// forget drops the bytes without writing them.
func (s *scatter) forget() {
	clear(s.vecs)
	s.space, s.vecs, s.sides = nil, s.vecs[:0], s.sides[:0]
}

// dropScatter drops everything in the QP's scatter, and gives it back.
func (qp *QP) dropScatter() {
	s := qp.scatter
	if s == nil {
		return
	}
	qp.scatter = nil
	s.forget()
	clear(s.ended)
	*s = scatter{vecs: s.vecs, sides: s.sides, ended: s.ended[:0]}
	scatterPool.Put(s)
}

// writeEach writes piece by piece after write has failed, up to the first piece of the
// responder that fails, and returns that piece's index and error. A READ whose piece fails
// ends with the error when its last response has arrived.
func (s *scatter) writeEach() (n int, err error) {
	for ; n < len(s.vecs); n++ {
		if err = s.space.WriteV(s.vecs[n : n+1]); err == nil {
			continue
		}
		if s.sides[n] != requester {
			return n, err
		}
		if s.read == nil {
			s.read = err
		}
	}
	return n, nil
}

// end postpones the completion of a receive request.
func (s *scatter) end(recv *RecvRequest, c *Completion) {
	vecs := len(s.vecs)
	if s.stuck != nil {
		vecs = maxScatter + 1 // never written
	}
	s.ended = append(s.ended, ended{recv: recv, done: *c, vecs: vecs})
}

// finishRead writes the data of a READ whose last response has arrived.
func (s *scatter) finishRead() error {
	if s == nil {
		return nil
	}
	if s.stuck != nil {
		return s.stuck
	}
	if err := s.read; err != nil {
		s.read = nil
		return err
	}
	return s.write()
}

// postponed reports whether the completion of a message has to wait for the end of the
// batch.
func (s *scatter) postponed() bool { return s != nil && (len(s.vecs) > 0 || len(s.ended) > 0) }

// EndBatch implements roce.Handler.
func (h *handler) EndBatch() roce.NAK {
	qp := (*QP)(h)
	s := qp.scatter
	if s == nil || s.err != nil {
		return roce.NAKNone
	}
	nak := roce.NAKNone
	written := 0
	if s.stuck != nil || s.write() != nil {
		err := error(nil)
		if written, err = s.writeEach(); err != nil {
			s.fault = s.sides[written]
		} else {
			err, s.fault = s.stuck, receiver
		}
		if err != nil {
			nak = roce.NAKRemoteOperational
			if s.fault == remote {
				nak = roce.NAKRemoteAccess
			}
			nak = nakOf(err, nak)
			s.err, qp.refused = err, err
			if qp.resp != nil {
				qp.resp.memory.err = err
			}
		}
	}
	if len(s.ended) == 0 {
		s.forget()
		qp.freeScatter()
		return nak
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	n := 0
	for n < len(s.ended) && s.ended[n].vecs <= written {
		e := &s.ended[n]
		n++
		if !qp.front.RecvDone(e.recv, &e.done) {
			nak = roce.NAKRemoteOperational
			s.err, s.fault = failure.New("receive a message", syscall.ENOSPC, "the completion queue takes no more completions"), remote
			break
		}
	}
	s.ended = append(s.ended[:0], s.ended[n:]...)
	s.forget()
	qp.freeScatter()
	return nak
}

// freeScatter gives the QP's scatter back if nothing of it is left, not even an error.
func (qp *QP) freeScatter() {
	if s := qp.scatter; len(s.ended) == 0 && s.err == nil && s.read == nil && s.stuck == nil {
		qp.dropScatter()
	}
}

// abandon completes the messages that a failed batch left over, and reports whether there
// were any. qp.mu is held.
func (s *scatter) abandon(qp *QP) bool {
	if s == nil {
		return false
	}
	st, left := rdma.StatusWRFlushErr, len(s.ended) > 0
	if s.err != nil && s.fault == receiver {
		st = rdma.StatusLocProtErr
	}
	for i := range s.ended {
		e := &s.ended[i]
		e.done = failedRecv(st, cmp.Or(s.err, qp.cause))
		qp.front.RecvDone(e.recv, &e.done)
		st = rdma.StatusWRFlushErr
	}
	qp.dropScatter()
	return left
}
