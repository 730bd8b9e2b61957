//go:build !windows

package udp

import (
	"errors"
	"syscall"
)

// isMessageSize reports whether the system found a datagram too large.
func isMessageSize(err error) bool { return errors.Is(err, syscall.EMSGSIZE) }
