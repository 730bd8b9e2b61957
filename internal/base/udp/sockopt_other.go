//go:build !windows && !linux && !darwin && !freebsd

package udp

import "syscall"

// dontFragment does nothing: this system has no such option, or none that we
// know.
func dontFragment(syscall.RawConn, bool) error { return nil }
