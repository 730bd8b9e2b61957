package unixsocket

import (
	"time"

	"golang.org/x/sys/unix"
)

// lock locks a folder against other calls of Listen, for as long as one call takes. unlock is never
// nil: a folder that cannot be locked (on NFS, without the right to read it, or locked for long by a
// program that knows nothing of sockets) is used without a lock.
func lock(folder string) (unlock func()) {
	fd, err := unix.Open(folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	for range 100 {
		if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != unix.EWOULDBLOCK {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { unix.Close(fd) } // unlocks
}
