package roce

import "strconv"

// Status is how a work request ended. The values are those of enum
// ibv_wc_status.
//
// A Status other than Success is also an error: a [Source] or [Sink] of the
// requester may return (or wrap) one to choose the status of its request.
type Status uint8

// The statuses that a reliable connection knows, by their numbers in
// <infiniband/verbs.h>.
const (
	Success        Status = 0
	LocLenErr      Status = 1  // local length error: a message is longer than its receive buffer, or than 2^31
	LocQPOpErr     Status = 2  // local QP operation error: a request that the QP cannot carry out
	LocProtErr     Status = 4  // local protection error: the request's own memory
	WRFlushErr     Status = 5  // not executed: the QP was or went to the error state
	MWBindErr      Status = 6  // a configuration of a memory key or a binding failed
	BadRespErr     Status = 7  // a response that fits no request
	LocAccessErr   Status = 8  // local access error: an RDMA WRITE with immediate met a receive request in error
	RemInvReqErr   Status = 9  // the peer refused the request as invalid
	RemAccessErr   Status = 10 // the peer refused the access to its memory
	RemOpErr       Status = 11 // the peer could not complete the request
	RetryExcErr    Status = 12 // no answer after all retries
	RNRRetryExcErr Status = 13 // the peer had no receive request after all retries
	RemAbortErr    Status = 16
	FatalErr       Status = 19
	RespTimeoutErr Status = 20
	GeneralErr     Status = 21
)

var statusText = [...]string{
	Success:        "success",
	LocLenErr:      "local length error",
	LocQPOpErr:     "local QP operation error",
	LocProtErr:     "local protection error",
	WRFlushErr:     "work request flushed error",
	MWBindErr:      "memory management operation error",
	BadRespErr:     "bad response error",
	LocAccessErr:   "local access error",
	RemInvReqErr:   "remote invalid request error",
	RemAccessErr:   "remote access error",
	RemOpErr:       "remote operation error",
	RetryExcErr:    "transport retry counter exceeded",
	RNRRetryExcErr: "RNR retry counter exceeded",
	RemAbortErr:    "aborted error",
	FatalErr:       "fatal error",
	RespTimeoutErr: "response timeout error",
	GeneralErr:     "general error",
}

// String returns the status in words.
func (s Status) String() string {
	if int(s) < len(statusText) && statusText[s] != "" {
		return statusText[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// Error makes a Status an error; it returns what String returns.
func (s Status) Error() string { return s.String() }

// NAK is what a responder answers to a request that it does not carry out. The
// zero value is no NAK: the request is fine.
//
// A NAK is also an error: a [Source] or [Sink] of the responder may return (or
// wrap) one to choose what the peer is told.
type NAK uint8

// The negative acknowledgements that a [Handler] can ask for. Those the
// transport finds by itself (PSN sequence error) are not among them.
const (
	NAKNone              NAK = iota
	NAKRNR                   // receiver not ready: the peer tries again later; only from BeginRecv
	NAKInvalidRequest        // the request cannot be meant for this QP
	NAKRemoteAccess          // the key does not permit the access
	NAKRemoteOperational     // the responder failed; not the requester's fault
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
	}
	return "NAK " + strconv.Itoa(int(n))
}

// Error makes a NAK an error; it returns what String returns.
func (n NAK) Error() string { return n.String() }
