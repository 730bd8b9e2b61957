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

// Error is a refused operation or configuration. errors.Is and errors.As find
// Errno and the cause.
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

// Is reports whether target is Errno, or a class of the standard library that Errno is of.
func (e *Error) Is(target error) bool {
	return e.Errno != 0 && (target == error(e.Errno) || e.Errno.Is(target))
}

// As sets a *syscall.Errno to Errno, if there is one.
func (e *Error) As(target any) bool {
	errno, ok := target.(*syscall.Errno)
	if !ok || e.Errno == 0 {
		return false
	}
	*errno = e.Errno
	return true
}

// Unwrap returns the cause, if there is one.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether Errno is one of a time that ran out, as net.Error has it.
func (e *Error) Timeout() bool { return e.Errno.Timeout() }

// Temporary is Errno's, for interface net.Error.
func (e *Error) Temporary() bool { return e.Errno.Temporary() }
