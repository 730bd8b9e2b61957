package operr_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/operr"
)

// TestAsPathError compares the class of an Error with that of an os.PathError of the same errno.
func TestAsPathError(t *testing.T) {
	for errno := range syscall.Errno(200) {
		ours, std := error(&operr.Error{Op: "test", Errno: errno}), error(&os.PathError{Err: errno})
		for _, target := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, errors.ErrUnsupported, fs.ErrInvalid, fs.ErrClosed} {
			if got, want := errors.Is(ours, target), errors.Is(std, target); got != want {
				t.Errorf("errno %d is %v: %v, want %v", errno, target, got, want)
			}
		}
		if got, want := os.IsTimeout(ours), os.IsTimeout(std); got != want {
			t.Errorf("errno %d is a timeout: %v, want %v", errno, got, want)
		}
	}
}

func TestWraps(t *testing.T) {
	err := fmt.Errorf("outside: %w", &operr.Error{Op: "read", Errno: syscall.ETIMEDOUT, Reason: "no answer", Err: io.ErrUnexpectedEOF})
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != syscall.ETIMEDOUT {
		t.Errorf("errno %v", errno)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("net.Error %v", timeout)
	}
	if !errors.Is(err, syscall.ETIMEDOUT) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EINVAL) {
		t.Error("errors.Is does not find errno and cause")
	}
	// Programs that print each of several joined errors in a line of its own leave an Error whole.
	if _, joined := errors.Unwrap(err).(interface{ Unwrap() []error }); joined || errors.Unwrap(errors.Unwrap(err)) != io.ErrUnexpectedEOF {
		t.Error("the cause is not what Unwrap returns")
	}
	if err := (&operr.Error{Op: "read", Err: io.EOF}); errors.Is(err, syscall.Errno(0)) || errors.As(err, &errno) {
		t.Error("an Error without an errno has one")
	}
}
