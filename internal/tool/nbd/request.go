package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/net/netconn"
)

// request is a request of a client.
type request struct {
	flags, command uint16
	cookie         uint64
	offset         uint64
	length         uint32
	buf            *[]byte // headRoom, and the data of a read or write
}

// headRoom is the number of bytes before the data in a request's buffer. They have room for the
// header of the reply to a read, so that one system call sends header and data.
const headRoom = 28

// data returns the part of the buffer for the data of the request.
func (r *request) data() []byte { return (*r.buf)[headRoom:][:r.length] }

// buffers holds the buffers of requests that have ended. The element n has those for 1<<n bytes of data, so that a
// small request never occupies a large buffer, which nobody would count.
var buffers [26]sync.Pool

// class returns the element of buffers for n bytes of data.
func class(n uint32) int { return bits.Len32(max(n, 1) - 1) }

// requests reads and starts requests until the client disconnects. A request that came alone, with
// no other in execution, is executed at once, since another goroutine would have to be woken first.
func (s *session) requests() error {
	var b [28]byte
	for {
		s.within(0)
		if _, err := io.ReadFull(s.in, b[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil // the connection ended between two requests
			}
			return err
		}
		if magic := binary.BigEndian.Uint32(b[:]); magic != magicRequest {
			return fmt.Errorf("a request begins with %#x: must be %#x", magic, uint32(magicRequest))
		}
		r := &request{
			flags: binary.BigEndian.Uint16(b[4:]), command: binary.BigEndian.Uint16(b[6:]),
			cookie: binary.BigEndian.Uint64(b[8:]), offset: binary.BigEndian.Uint64(b[16:]), length: binary.BigEndian.Uint32(b[24:]),
		}
		if r.command == cmdDisconnect {
			return nil
		}
		held := 0
		if r.command == cmdRead || r.command == cmdWrite {
			if r.length > maxRequest {
				if r.command == cmdWrite {
					return fmt.Errorf("a write of %d bytes: must be at most %d", r.length, maxRequest)
				}
				if err := s.fail(r, eOVERFLOW, "too long"); err != nil {
					return err
				}
				continue
			}
			held = 1 << class(r.length)
		}
		alone, err := s.held.enter(held)
		if err == nil {
			err = s.receive(r)
		}
		if err != nil {
			s.held.leave(held)
			return err
		}
		if alone && s.in.Buffered() == 0 {
			s.handle(r, held)
		} else {
			s.pool.run(func() { s.handle(r, held) })
		}
	}
}

// handle executes a request that holds n bytes, and gives back what it holds.
func (s *session) handle(r *request, n int) {
	defer s.held.leave(n)
	err := s.execute(r)
	if r.buf != nil {
		loan.End(*r.buf)
		buffers[class(r.length)].Put(r.buf)
	}
	if err != nil { // the client cannot be reached any more
		s.conn.Close()
	}
}

// receive gives a request its buffer, and reads the payload of a write.
func (s *session) receive(r *request) error {
	if r.command != cmdRead && r.command != cmdWrite {
		return nil
	}
	size := class(r.length)
	if r.buf, _ = buffers[size].Get().(*[]byte); r.buf == nil {
		b := netconn.NewBuffer(headRoom + 1<<size)
		r.buf = &b
	}
	*r.buf = (*r.buf)[:headRoom+int(r.length)]
	if r.command == cmdRead {
		return nil
	}
	s.within(patience)
	_, err := io.ReadFull(s.in, r.data())
	return err
}

// execute executes a request and replies. It returns an error only if the reply cannot be sent.
func (s *session) execute(r *request) error {
	size := uint64(s.server.device.Size())
	if r.command != cmdFlush && (r.offset > size || uint64(r.length) > size-r.offset) {
		errno := uint32(eINVAL)
		if r.command == cmdWrite || r.command == cmdWriteZeroes {
			errno = eNOSPC
		}
		return s.fail(r, errno, "beyond the end of the device")
	}
	known := uint16(cmdFlagFUA)
	switch r.command {
	case cmdRead:
		if s.structured {
			known |= cmdFlagDF
		}
	case cmdWriteZeroes:
		known |= cmdFlagNoHole
	}
	if r.flags&^known != 0 {
		return s.fail(r, eINVAL, "flags that were not offered")
	}
	var err error
	switch r.command {
	case cmdRead:
		return s.read(r)
	case cmdFlush:
		err = s.server.device.Flush()
	case cmdWrite, cmdTrim, cmdWriteZeroes:
		switch {
		case s.server.options.ReadOnly:
			return s.fail(r, ePERM, "the device is for reading only")
		case r.command == cmdWrite:
			_, err = s.server.device.WriteAt(r.data(), int64(r.offset))
		case !s.server.options.Zeroes:
			return s.fail(r, eINVAL, "the command was not offered")
		case r.command == cmdTrim:
			err = s.server.device.Trim(int64(r.offset), int64(r.length))
		default:
			err = s.server.device.Zero(int64(r.offset), int64(r.length))
		}
		if err == nil && r.flags&cmdFlagFUA != 0 {
			err = s.server.device.Flush()
		}
	default:
		return s.fail(r, eINVAL, "the command is not known")
	}
	if err != nil {
		return s.fail(r, protocolError(err), err.Error())
	}
	if s.structured {
		return s.send(s.chunk(nil, r, chunkDone, chunkNone, 0))
	}
	return s.simple(r, 0)
}

// read executes a read. If a block is bad, it sends the data before that block and then the error,
// provided that the client takes structured replies.
func (s *session) read(r *request) error {
	data := r.data()
	n, err := s.server.device.ReadAt(data, int64(r.offset))
	if errors.Is(err, io.EOF) && n == len(data) {
		err = nil
	}
	if err == nil && n < len(data) {
		err = failure.New("read", syscall.EIO, "%d of %d bytes", n, len(data))
	}
	switch {
	case err == nil && !s.structured:
		head := (*r.buf)[headRoom-16 : headRoom-16]
		head = appendSimple(head, 0, r.cookie)
		return s.send((*r.buf)[headRoom-len(head):])
	case err == nil && len(data) > 0:
		head := s.chunk((*r.buf)[:0], r, chunkDone, chunkOffsetData, 8+len(data))
		binary.BigEndian.AppendUint64(head, r.offset)
		return s.send(*r.buf)
	case err == nil:
		return s.send(s.chunk(nil, r, chunkDone, chunkNone, 0))
	case !s.structured:
		return s.simple(r, protocolError(err))
	}
	if n > 0 && r.flags&cmdFlagDF == 0 {
		head := s.chunk((*r.buf)[:0], r, 0, chunkOffsetData, 8+n)
		binary.BigEndian.AppendUint64(head, r.offset)
		if err := s.send((*r.buf)[:headRoom+n]); err != nil {
			return err
		}
	}
	return s.send(s.failure(r, protocolError(err), err.Error(), chunkErrorOffset, binary.BigEndian.AppendUint64(nil, r.offset+uint64(n))))
}

// failure returns a structured reply that tells the client of an error: its number and a text, of at most the 4,096
// bytes that the protocol allows. more are the fields that follow the text in a reply of this kind.
func (s *session) failure(r *request, errno uint32, text string, kind uint16, more []byte) []byte {
	text = text[:min(len(text), 4096)]
	b := s.chunk(nil, r, chunkDone, kind, 4+2+len(text)+len(more))
	b = binary.BigEndian.AppendUint32(b, errno)
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(append(b, text...), more...)
}

// fail replies with an error.
func (s *session) fail(r *request, errno uint32, why string) error {
	if !s.structured {
		return s.simple(r, errno)
	}
	return s.send(s.failure(r, errno, why, chunkError, nil))
}

func (s *session) simple(r *request, errno uint32) error {
	return s.send(appendSimple(nil, errno, r.cookie))
}

func appendSimple(b []byte, errno uint32, cookie uint64) []byte {
	b = binary.BigEndian.AppendUint32(b, magicSimple)
	b = binary.BigEndian.AppendUint32(b, errno)
	return binary.BigEndian.AppendUint64(b, cookie)
}

// chunk appends the header of a structured reply's chunk with n bytes of payload.
func (s *session) chunk(b []byte, r *request, flags, kind uint16, n int) []byte {
	b = binary.BigEndian.AppendUint32(b, magicChunk)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint64(b, r.cookie)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// send sends a whole reply, or a chunk of one. Chunks of other replies may follow before the next. A client that takes
// nothing may do so for as long as nobody waits for the memory of its replies.
func (s *session) send(b []byte) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	for {
		more := s.sendWithin(patience)
		n, err := s.conn.Write(b)
		if b = b[n:]; !more || !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 && s.server.waiting.Load() > 0 {
			return err
		}
	}
}
