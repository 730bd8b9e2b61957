package rdma

import "strconv"

// Status is the result of a work request. The values are those of enum ibv_wc_status.
type Status uint8

// The statuses of completions.
const (
	StatusSuccess        Status = 0
	StatusLocLenErr      Status = 1  // local length error: a message is longer than its receive buffer, or than 2^31
	StatusLocQPOpErr     Status = 2  // local QP operation error: the QP does not support the request
	StatusLocProtErr     Status = 4  // local protection error: the request's own memory cannot be accessed
	StatusWRFlushErr     Status = 5  // work request flushed error: not executed, because the QP was in the error state or entered it
	StatusMWBindErr      Status = 6  // configuring a memory key or binding a memory window failed
	StatusBadRespErr     Status = 7  // bad response error: a response matches no outstanding request
	StatusLocAccessErr   Status = 8  // local access error: the receive request of an RDMA WRITE with immediate failed
	StatusRemInvReqErr   Status = 9  // the peer rejected the request as invalid
	StatusRemAccessErr   Status = 10 // the peer denied the access to its memory
	StatusRemOpErr       Status = 11 // the peer failed to complete the request
	StatusRetryExcErr    Status = 12 // the peer did not answer within all retries
	StatusRNRRetryExcErr Status = 13 // the peer had no receive request within all retries
	StatusRemAbortErr    Status = 16
	StatusFatalErr       Status = 19
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
	20:                   "response timeout error",
	21:                   "general error",
}

// String returns the status in words, as ibv_wc_status_str does.
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

// StatusError is a [Status] other than StatusSuccess as an error.
type StatusError Status

// Error returns the status in words.
func (e StatusError) Error() string { return Status(e).String() }

// Timeout reports whether the peer did not answer, or was not ready, within all retries. It
// has the meaning of net.Error's.
func (e StatusError) Timeout() bool {
	switch Status(e) {
	case StatusRetryExcErr, StatusRNRRetryExcErr, 20: // IBV_WC_RESP_TIMEOUT_ERR
		return true
	}
	return false
}
