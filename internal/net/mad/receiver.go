package mad

import "encoding/binary"

// A Receiver says which one of several communication managers at an address a MAD is for.
type Receiver struct {
	// ID is the communication or request id that the receiver chose; 0 in a request,
	// which names ServiceID.
	ID uint32

	// ServiceID is the service that a REQ or a SIDR_REQ asks for.
	ServiceID uint64

	// Request tells which of the fields counts: ServiceID if it is set.
	Request bool
}

// ReceiverOf returns the receiver that a MAD names, without parsing the rest. ok is false if the
// MAD is not one of the communication manager.
func ReceiverOf(b []byte) (r Receiver, ok bool) {
	if len(b) != Len || b[1] != classCM {
		return r, false
	}
	body := b[headerLen:]
	switch Attr(binary.BigEndian.Uint16(b[16:])) {
	case AttrREQ, AttrSIDRREQ:
		return Receiver{ServiceID: binary.BigEndian.Uint64(body[8:]), Request: true}, true
	case AttrSIDRREP:
		return Receiver{ID: binary.BigEndian.Uint32(body)}, true
	}
	// Every other message begins with the sender's id and the receiver's.
	return Receiver{ID: binary.BigEndian.Uint32(body[4:])}, true
}
