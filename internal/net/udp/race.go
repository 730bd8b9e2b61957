//go:build race

package udp

import (
	"runtime"
	"unsafe"
)

// network represents the network for the race detector.
var network byte

// released and acquired inform the race detector that events before sending a datagram
// happen before its reception, as package syscall does for read and write. Both ends may
// be in one process.
func released() { runtime.RaceReleaseMerge(unsafe.Pointer(&network)) }

func acquired() { runtime.RaceAcquire(unsafe.Pointer(&network)) }
