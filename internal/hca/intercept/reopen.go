//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A program can name a file that it has open: /proc/self/fd/7. The kernel follows this
// link to the file itself, which for a device is the memfd that stands for it. The
// supervisor answers as a kernel with the device's node would.

// descriptor returns the tracked file of a descriptor that a cleaned path names through
// /proc, or nil.
func (s *Supervisor) descriptor(c *Call, path string) *tracked {
	if rest, ok := strings.CutPrefix(path, "/dev/fd/"); ok {
		path = "/proc/self/fd/" + rest
	}
	i := strings.LastIndexByte(path, '/')
	folder, number := path[:i], path[i+1:]
	if !strings.HasPrefix(folder, "/proc/") || !strings.HasSuffix(folder, "/fd") || number == "" || strings.Trim(number, "0123456789") != "" {
		return nil
	}
	// /proc of the program may be that of another PID namespace. Its "self" would be
	// this process.
	const self, thread = "/proc/self/", "/proc/thread-self/"
	if rest, ok := strings.CutPrefix(path, self); ok {
		path = fmt.Sprintf("/proc/%d/%s", c.Process(), rest)
	} else if rest, ok := strings.CutPrefix(path, thread); ok {
		path = fmt.Sprintf("/proc/%d/task/%d/%s", c.Process(), c.Thread(), rest)
	} else {
		path = fmt.Sprintf("/proc/%d/root%s", c.Thread(), path)
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return nil
	}
	return s.files.find(inodeOf(&st))
}

// reopen answers an open of a descriptor through /proc. That of a device opens the node
// once more. A channel has no node in the file system.
func (s *Supervisor) reopen(c *Call, t *tracked, flags int) (int, error) {
	switch {
	case flags&(unix.O_PATH|unix.O_NOFOLLOW) != 0: // of the link in /proc
		return 0, errInKernel
	case t.device == nil:
		return 0, unix.ENXIO
	}
	return s.apart(c, func() (int, error) { return s.openNode(c, t.device.path, t.device.node, flags) })
}
