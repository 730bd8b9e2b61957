package cm

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/device/cmcore"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/operr"
)

// Reason is the reason for a refused connection, as numbered in section 12.6.7.2 of the
// InfiniBand specification.
type Reason uint16

// The reasons that programs compare or pass to [Request.Reject]. String knows the others, too.
const (
	ReasonNoQP        Reason = 1
	ReasonNoResources Reason = 3
	ReasonNoListener  Reason = 8
	ReasonConsumer    Reason = 28 // the application refused
)

// String returns the reason in words.
func (r Reason) String() string { return mad.Reason(r).String() }

// RejectError means that the peer refused a connection or gave it up. Errors of this
// package wrap it.
type RejectError struct {
	Reason      Reason
	PrivateData []byte // from the peer's application, padded with zeros to 148 bytes
}

// Error returns the reason in words.
func (e *RejectError) Error() string {
	return fmt.Sprintf("the peer refused: %v (reason %d)", e.Reason, uint16(e.Reason))
}

// failed returns the error of an event that ends a connection before it is
// established.
func failed(op string, peer Addr, e cmcore.Event) error {
	if e.Kind == cmcore.Rejected {
		return &operr.Error{Op: op, Errno: syscall.ECONNREFUSED, Reason: peer.String(), Err: &RejectError{Reason(e.Reason), e.Private}}
	}
	if errors.Is(e.Err, net.ErrClosed) {
		return e.Err // the device was closed
	}
	if e.Err != nil {
		return &operr.Error{Op: op, Errno: syscall.ETIMEDOUT, Reason: peer.String(), Err: e.Err}
	}
	return failure.New(op, syscall.ECONNRESET, "%s: the peer ended the connection", peer)
}
