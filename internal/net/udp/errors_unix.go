//go:build !windows

package udp

import (
	"errors"
	"syscall"
)

// isMessageSize reports whether err means that a datagram is too large.
func isMessageSize(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }
