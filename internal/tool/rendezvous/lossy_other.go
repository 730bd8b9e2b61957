//go:build !linux

package rendezvous

import "syscall"

// controlLossy does nothing: only Linux has an option that limits the waits of TCP.
func controlLossy(_, _ string, _ syscall.RawConn) error { return nil }
