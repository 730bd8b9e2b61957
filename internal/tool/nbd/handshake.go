package nbd

import (
	"encoding/binary"
	"fmt"
	"io"
)

// handshake executes the handshake. It reports whether the client will send requests next.
func (s *session) handshake() (ready bool, err error) {
	hello := binary.BigEndian.AppendUint64(nil, magicServer)
	hello = binary.BigEndian.AppendUint64(hello, magicOption)
	hello = binary.BigEndian.AppendUint16(hello, flagFixedNewstyle|flagNoZeroes)
	if _, err := s.conn.Write(hello); err != nil {
		return false, err
	}
	var b [16]byte
	if _, err := io.ReadFull(s.in, b[:4]); err != nil {
		return false, err
	}
	flags := binary.BigEndian.Uint32(b[:])
	if flags&^(flagFixedNewstyle|flagNoZeroes) != 0 || flags&flagFixedNewstyle == 0 {
		return false, fmt.Errorf("the client's flags are %#x: must be those of the fixed newstyle handshake", flags)
	}
	const mostOptions = 64
	for range mostOptions {
		if _, err := io.ReadFull(s.in, b[:]); err != nil {
			return false, err
		}
		if magic := binary.BigEndian.Uint64(b[:]); magic != magicOption {
			return false, fmt.Errorf("an option begins with %#x: must be %#x", magic, uint64(magicOption))
		}
		option, n := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		if n > maxOption {
			if _, err := io.CopyN(io.Discard, s.in, int64(n)); err != nil {
				return false, err
			}
			if err := s.answer(option, repErrTooBig, nil); err != nil {
				return false, err
			}
			continue
		}
		data := make([]byte, n)
		if _, err := io.ReadFull(s.in, data); err != nil {
			return false, err
		}
		switch option {
		case optExportName:
			if s.full {
				return false, errFull
			}
			if len(data) > 0 {
				return false, fmt.Errorf("the client asks for the export %q: there is only the default export", data)
			}
			reply := binary.BigEndian.AppendUint64(nil, uint64(s.server.device.Size()))
			reply = binary.BigEndian.AppendUint16(reply, s.transmission())
			if flags&flagNoZeroes == 0 {
				reply = append(reply, make([]byte, 124)...)
			}
			_, err := s.conn.Write(reply)
			return err == nil, err
		case optAbort:
			_ = s.answer(option, repAck, nil) // fails if the client has closed the connection, as it may
			return false, nil
		default:
			ready, err := s.option(option, data)
			if ready || err != nil {
				return ready, err
			}
		}
	}
	return false, fmt.Errorf("more than %d options", mostOptions)
}

// option answers an option. It reports whether it was the last one.
func (s *session) option(option uint32, data []byte) (last bool, err error) {
	if s.full { // clients take the answer to optGo for the outcome
		err := s.answer(option, repErrPolicy, []byte(errFull.Error()))
		if err == nil && option == optGo {
			err = errFull
		}
		return false, err
	}
	switch option {
	case optList:
		if len(data) > 0 {
			return false, s.answer(option, repErrInvalid, nil)
		}
		if err := s.answer(option, repServer, make([]byte, 4)); err != nil { // a name of 0 bytes
			return false, err
		}
		return false, s.answer(option, repAck, nil)
	case optStructuredReply:
		if len(data) > 0 {
			return false, s.answer(option, repErrInvalid, nil)
		}
		s.structured = true
		return false, s.answer(option, repAck, nil)
	case optInfo, optGo:
		if len(data) < 6 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-6) {
			return false, s.answer(option, repErrInvalid, nil)
		}
		if binary.BigEndian.Uint32(data) > 0 {
			return false, s.answer(option, repErrUnknown, []byte("there is only the default export"))
		}
		info := binary.BigEndian.AppendUint16(nil, infoExport)
		info = binary.BigEndian.AppendUint64(info, uint64(s.server.device.Size()))
		info = binary.BigEndian.AppendUint16(info, s.transmission())
		if err := s.answer(option, repInfo, info); err != nil {
			return false, err
		}
		sizes := binary.BigEndian.AppendUint16(nil, infoBlockSize)
		for _, n := range []uint32{1, preferred, maxRequest} {
			sizes = binary.BigEndian.AppendUint32(sizes, n)
		}
		if err := s.answer(option, repInfo, sizes); err != nil {
			return false, err
		}
		return option == optGo, s.answer(option, repAck, nil)
	}
	return false, s.answer(option, repErrUnsup, nil)
}

// answer sends a reply to an option.
func (s *session) answer(option, kind uint32, data []byte) error {
	b := binary.BigEndian.AppendUint64(nil, magicReply)
	for _, v := range []uint32{option, kind, uint32(len(data))} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	_, err := s.conn.Write(append(b, data...))
	return err
}

// transmission returns the transmission flags of the export.
func (s *session) transmission() uint16 {
	// sendMultiConn is right because all connections share the device: a flush by one of them also
	// flushes the writes of the others.
	flags := uint16(sendHasFlags | sendFlush | sendFUA | sendMultiConn)
	if s.structured {
		flags |= sendDF // simple replies cannot be fragments, and the protocol forbids the flag
	}
	switch {
	case s.server.options.ReadOnly:
		flags |= sendReadOnly
	case s.server.options.Zeroes:
		flags |= sendTrim | sendWriteZeroes
	}
	return flags
}
