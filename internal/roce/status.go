package roce

import "strconv"

// NAK is a negative acknowledgement: the responder's answer to a request that it rejects.
// The zero value, NAKNone, accepts the request.
type NAK uint8

// The negative acknowledgements that a [Handler] can return. The NAK for a sequence error
// is not listed, because only the transport sends it.
const (
	NAKNone              NAK = iota
	NAKRNR                   // receiver not ready: the peer retries later; only BeginRecv may return it
	NAKInvalidRequest        // the request is malformed, too long, or not supported
	NAKRemoteAccess          // the key does not permit the access
	NAKRemoteOperational     // the responder failed for a reason that is not the requester's fault

	// NAKGone sends nothing: the QP enters the error state as if it had been destroyed, and
	// the peer's retries end. The memory's owner has ended.
	NAKGone
)

// String returns the code in words.
func (n NAK) String() string {
	switch n {
	case NAKNone:
		return "none"
	case NAKRNR:
		return "receiver not ready"
	case NAKInvalidRequest:
		return "invalid request"
	case NAKRemoteAccess:
		return "remote access error"
	case NAKRemoteOperational:
		return "remote operational error"
	case NAKGone:
		return "gone"
	}
	return "NAK " + strconv.Itoa(int(n))
}

// Err returns n as an error, a [NAKError], or nil for NAKNone.
func (n NAK) Err() error {
	if n == NAKNone {
		return nil
	}
	return NAKError(n)
}

// NAKError is an error with a [NAK] other than NAKNone. A responder's [Source] or [Sink]
// returns or wraps one to choose the NAK for the peer.
type NAKError NAK

// Error returns the NAK in words.
func (e NAKError) Error() string { return NAK(e).String() }
