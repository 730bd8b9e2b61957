//go:build unix

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// atOnce is the flag with which the opening of a named pipe does not wait for its other end.
const atOnce = syscall.O_NONBLOCK

// passedSockets returns the listening sockets that the program which started this one has passed to it
// by the protocol of systemd's socket activation, sd_listen_fds(3): descriptors from 3 on, their
// number in LISTEN_FDS, and this process in LISTEN_PID.
func passedSockets() ([]net.Listener, error) {
	count, pid := os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_PID")
	if count == "" || pid != strconv.Itoa(os.Getpid()) {
		return nil, nil // none, or inherited from a program that they were meant for
	}
	for _, name := range []string{"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		_ = os.Unsetenv(name) // its errors are those of bad names
	}
	const first, most = 3, 64
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > most {
		return nil, fmt.Errorf("LISTEN_FDS=%s: must be a number of sockets from 1 to %d", count, most)
	}
	var all []net.Listener
	for fd := first; fd < first+n; fd++ {
		l, err := passedSocket(fd)
		if err != nil {
			return nil, fmt.Errorf("LISTEN_FDS=%s: descriptor %d: %w", count, fd, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func passedSocket(fd int) (net.Listener, error) {
	switch listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); {
	case err != nil:
		return nil, err
	case listens == 0:
		return nil, errors.New("is not a listening socket: a unit of systemd needs Accept=no")
	}
	f := os.NewFile(uintptr(fd), "passed socket")
	defer f.Close() // the listener has a descriptor of its own
	return net.FileListener(f)
}
