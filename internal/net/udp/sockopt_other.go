//go:build !windows && !linux && !darwin && !freebsd

package udp

import "syscall"

// dontFragment does nothing, because this system has no known option for it.
func dontFragment(syscall.RawConn, bool) error { return nil }
