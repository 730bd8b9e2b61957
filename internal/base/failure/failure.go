// Package failure makes the errors of softmkey's packages, which are of type
// *operr.Error.
package failure

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/softmkey/softmkey/operr"
)

// New returns the error of an operation: its errno, and a reason that is formatted as by
// fmt.Sprintf. The reason names the offending value and the rule that it breaks.
func New(op string, errno syscall.Errno, format string, args ...any) *operr.Error {
	return &operr.Error{Op: op, Errno: errno, Reason: fmt.Sprintf(format, args...)}
}

// Zero returns the error of an operation on the zero value of a type whose values maker returns.
func Zero(op, maker string) error {
	return New(op, syscall.EINVAL, "the zero value: %s makes one", maker)
}

// Errno returns the errno of an error: that of the outermost *operr.Error, or else the
// system's. It returns otherwise if err has none.
func Errno(err error, otherwise syscall.Errno) syscall.Errno {
	var refused *operr.Error
	if errors.As(err, &refused) && refused.Errno != 0 {
		return refused.Errno
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return otherwise
}
