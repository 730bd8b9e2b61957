package frames

import (
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// MaxFrame is the largest frame of a link.
const MaxFrame = 1 << 14

// Link is a network of Ethernet frames. Send and Recv may be called at the same time.
type Link interface {
	// Send sends a frame. A frame for which the network has no room is lost
	// without an error, as on a wire. Send does not wait.
	Send(frame []byte) error

	// Recv waits for a frame and returns its length. Frames longer than b are
	// truncated. An error other than net.ErrClosed says that the link is down; further
	// calls wait until it is up again.
	Recv(b []byte) (int, error)

	// Close ends Recv. Further calls return net.ErrClosed.
	Close() error
}

// Open opens a link by its name on the command line: "unix:PATH" for a UNIX socket, or
// else the name of a tap device.
func Open(name string) (Link, error) {
	if path, ok := strings.CutPrefix(name, "unix:"); ok && path != "" {
		return OpenUnix(path)
	} else if name == "" || ok {
		return nil, failure.New("open a network", syscall.EINVAL, "network %q: must be the name of a tap device, or unix:PATH", name)
	}
	return OpenTap(name)
}
