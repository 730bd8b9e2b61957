// Package failure makes the errors of softmkey's packages, which are of type
// *operr.Error.
package failure

import (
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// New returns the error of an operation: its errno, and a reason that is formatted as by
// fmt.Sprintf. The reason names the offending value and the rule that it breaks.
func New(op string, errno syscall.Errno, format string, args ...any) *operr.Error {
	return &operr.Error{Op: op, Errno: errno, Reason: fmt.Sprintf(format, args...)}
}
