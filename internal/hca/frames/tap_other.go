//go:build !linux

package frames

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// OpenTap opens a tap device on Linux.
func OpenTap(name string) (Link, error) {
	return nil, failure.New("open a tap device", syscall.EOPNOTSUPP, "%s: tap devices are supported on Linux only", name)
}

// OpenUnix opens a UNIX socket on Linux.
func OpenUnix(path string) (Link, error) {
	return nil, failure.New("open a network", syscall.EOPNOTSUPP, "%s: sockets of frames are supported on Linux only", path)
}
