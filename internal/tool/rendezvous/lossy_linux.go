package rendezvous

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// longestWait is the longest time, in milliseconds, that TCP waits before it sends a packet again. TCP doubles
// its wait with each loss, so on a line that loses a third of the packets a step could take longer than
// StepTimeout.
const longestWait = 1000

// controlLossy prepares a socket for lines that lose many packets. Linux has the option since version 6.15. An
// older kernel refuses it, and its TCP waits for as long as it always did.
func controlLossy(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, longestWait)
	})
}
