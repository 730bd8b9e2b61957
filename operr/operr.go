// Package operr is the error type of operations that softmkey's packages refuse.
//
// An [Error] names the operation that was refused, the errno that a C program would see,
// and the reason in words with the offending value. Programs compare the errno, or the
// standard library's class of it, as for an [os.PathError]:
//
//	if errors.Is(err, syscall.EBUSY) { … }
//	if errors.Is(err, fs.ErrPermission) { … }
//
// Errors about data are other types: a bad block signature is a *sig.Error. Errors of
// readers, writers and networks of the caller's are returned as they are.
package operr

import "syscall"

// Error is a refused operation or configuration. It wraps Errno and Err: errors.Is and
// errors.As find both.
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

// Unwrap returns Errno and the cause, those that are there.
func (e *Error) Unwrap() []error {
	var wrapped []error
	if e.Errno != 0 {
		wrapped = append(wrapped, e.Errno)
	}
	if e.Err != nil {
		wrapped = append(wrapped, e.Err)
	}
	return wrapped
}

// Timeout reports whether Errno is one of a time that ran out, as net.Error has it.
func (e *Error) Timeout() bool { return e.Errno.Timeout() }

// Temporary is Errno's, for interface net.Error.
func (e *Error) Temporary() bool { return e.Errno.Temporary() }
