//go:build race

package udp

import (
	"runtime"
	"unsafe"
)

// network stands for the network in the race detector's eyes.
var network byte

// released and acquired tell the race detector what the kernel's sockets do, as
// package syscall does for read and write: what happened before a datagram was
// sent happened before it is received. Both ends may be in one process.
func released() { runtime.RaceReleaseMerge(unsafe.Pointer(&network)) }

func acquired() { runtime.RaceAcquire(unsafe.Pointer(&network)) }
