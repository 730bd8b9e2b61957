package roce

import "strconv"

// Status is the result of a work request. The values are those of enum ibv_wc_status.
type Status uint8

// The statuses that the transport knows.
const (
	StatusSuccess        Status = 0
	StatusLocLenErr      Status = 1  // local length error: a message is longer than its receive buffer, or than 2^31
	StatusLocQPOpErr     Status = 2  // local QP operation error: a request that the QP cannot carry out
	StatusLocProtErr     Status = 4  // local protection error: the request's own memory
	StatusWRFlushErr     Status = 5  // not executed: the QP was or went to the error state
	StatusMWBindErr      Status = 6  // a configuration of a memory key or a binding failed
	StatusBadRespErr     Status = 7  // a response that fits no request
	StatusLocAccessErr   Status = 8  // local access error: an RDMA WRITE with immediate met a receive request in error
	StatusRemInvReqErr   Status = 9  // the peer refused the request as invalid
	StatusRemAccessErr   Status = 10 // the peer refused the access to its memory
	StatusRemOpErr       Status = 11 // the peer could not complete the request
	StatusRetryExcErr    Status = 12 // no answer after all retries
	StatusRNRRetryExcErr Status = 13 // the peer had no receive request after all retries
	StatusRemAbortErr    Status = 16
	StatusFatalErr       Status = 19
	StatusRespTimeoutErr Status = 20
	StatusGeneralErr     Status = 21
)

var statusText = [...]string{
	StatusSuccess:        "success",
	StatusLocLenErr:      "local length error",
	StatusLocQPOpErr:     "local QP operation error",
	StatusLocProtErr:     "local protection error",
	StatusWRFlushErr:     "work request flushed error",
	StatusMWBindErr:      "memory management operation error",
	StatusBadRespErr:     "bad response error",
	StatusLocAccessErr:   "local access error",
	StatusRemInvReqErr:   "remote invalid request error",
	StatusRemAccessErr:   "remote access error",
	StatusRemOpErr:       "remote operation error",
	StatusRetryExcErr:    "transport retry counter exceeded",
	StatusRNRRetryExcErr: "RNR retry counter exceeded",
	StatusRemAbortErr:    "aborted error",
	StatusFatalErr:       "fatal error",
	StatusRespTimeoutErr: "response timeout error",
	StatusGeneralErr:     "general error",
}

// String returns the status in words.
func (s Status) String() string {
	if int(s) < len(statusText) && statusText[s] != "" {
		return statusText[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// Err returns s as an error, a [StatusError], or nil for StatusSuccess.
func (s Status) Err() error {
	if s == StatusSuccess {
		return nil
	}
	return StatusError(s)
}

// StatusError is a [Status] other than StatusSuccess as an error. A [Source] or [Sink] of
// the requester returns or wraps one to choose the status of its request.
type StatusError Status

// Error returns the status in words.
func (e StatusError) Error() string { return Status(e).String() }

// NAK is the responder's answer to a request that it does not carry out. The zero value
// is no NAK: the request is fine.
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

// Err returns n as an error, a [NAKError], or nil for NAKNone.
func (n NAK) Err() error {
	if n == NAKNone {
		return nil
	}
	return NAKError(n)
}

// NAKError is a [NAK] other than NAKNone as an error. A [Source] or [Sink] of the
// responder returns or wraps one to choose the NAK that is sent to the peer.
type NAKError NAK

// Error returns the NAK in words.
func (e NAKError) Error() string { return NAK(e).String() }
