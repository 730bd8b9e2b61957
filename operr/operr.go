// Package operr is the error type of softmkey's public packages.
//
// An [Error] names the operation that was refused, the errno that a C program would see,
// and the reason in words with the offending value. Programs compare the errno:
//
//	if errors.Is(err, syscall.EBUSY) { … }
//
// Errors about data are other types: a bad block signature is a *sig.Error.
package operr

import "syscall"

// Error is a refused operation or configuration. errors.Is(err, syscall.EINVAL) compares
// Errno.
type Error struct {
	Op     string        // the operation: "mkey configure", "sig format"
	Errno  syscall.Errno // the class, as the verbs manual pages name it
	Reason string        // the offending value and the rule it breaks
	Err    error         // the cause, if another package found it; may be nil
}

// Error returns the operation, the reason and the cause, if there is one. The text of
// the errno is not a part of it.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Op + ": " + e.Reason + ": " + e.Err.Error()
	}
	return e.Op + ": " + e.Reason
}

// Is reports whether target is the errno of e.
func (e *Error) Is(target error) bool {
	errno, ok := target.(syscall.Errno)
	return ok && errno == e.Errno
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.Err }
