//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A page of a process may have to wait for another process or host: under userfaultfd, or in a file of FUSE or of a
// network. A system call that copies such a page waits too, and cannot be interrupted. The supervisor sees the system
// call by which a process gets such memory. From then on it answers each call of that process in a goroutine of its own.

// userfaultDevice is the node with an ioctl that does the same as the system call userfaultfd.
const userfaultDevice = "/dev/userfaultfd"

// waits notes that memory of the caller's process may wait, and tells the devices that it has open.
func (s *Supervisor) waits(c *Call) {
	pid := c.Process()
	r := &s.files
	r.mu.Lock()
	if s.slow.pids == nil {
		s.slow.pids = map[int]bool{}
	}
	s.slow.pids[pid] = true
	s.slow.any.Store(true)
	var open []*openFile
	for _, t := range r.byInode {
		if t.device != nil && t.device.owner == pid && t.d == t.device.Descriptor() {
			open = append(open, t.device)
		}
	}
	r.mu.Unlock()
	for _, f := range open {
		f.MayWait()
	}
}

// mayWait reports whether memory of a process, or of one that it was forked from, may wait.
func (s *Supervisor) mayWait(pid int) bool {
	if !s.slow.any.Load() {
		return false
	}
	for range 64 {
		s.files.mu.Lock()
		found := s.slow.pids[pid]
		s.files.mu.Unlock()
		if found {
			return true
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(field(status, "PPid:")); err != nil || pid <= 1 {
			return false
		}
	}
	return false
}

// remote are the types of file systems whose pages another process or host supplies.
var remote = []string{"fuse", "nfs", "cifs", "smb", "ceph", "9p", "virtiofs", "afs", "lustre", "gfs2", "ocfs2", "orangefs", "coda"}

// isRemote reports whether a file of the caller is on such a file system. It asks the list of mounts,
// because the file system itself might not answer.
func isRemote(c *Call, fd int32) bool {
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", c.Thread(), fd))
	id := field(append([]byte{'\n'}, info...), "mnt_id:")
	if id == "" {
		return false
	}
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.Thread()))
	for line := range bytes.Lines(mounts) {
		if !bytes.HasPrefix(line, []byte(id+" ")) {
			continue
		}
		_, rest, _ := strings.Cut(string(line), " - ")
		kind, _, _ := strings.Cut(rest, " ")
		if slices.ContainsFunc(remote, func(r string) bool { return strings.HasPrefix(kind, r) }) {
			return true
		}
	}
	return false
}
