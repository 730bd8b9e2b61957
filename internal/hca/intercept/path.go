//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/procmem"
)

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// longest bounds the paths that are read from programs. Every path of an owned tree is
// shorter; the kernel handles the others.
const longest = 512

// path reads a path of the caller's memory, which begins at the folder dir if it is relative. It returns
// the path for which the supervisor answers, cleaned, or the tracked file if the path names a descriptor
// of a device or channel. Of others, which the kernel resolves, it returns neither. The path need not
// be in an owned tree: it can lead out of one, as /sys/class/infiniband/.. does.
func (s *Supervisor) path(c *Call, dir int32, addr uint64) (string, *tracked) {
	text, ok := s.pathText(c, addr)
	if !ok || text == "" {
		return "", nil
	}
	through := false // the path begins in the tree, where the kernel finds another folder above
	if text[0] != '/' {
		base, tree := s.base(c, dir, text)
		if base == "" {
			return "", nil
		}
		text, through = base+"/"+text, tree
	}
	path := clean(text)
	last := strings.HasSuffix(text, "/") || strings.HasSuffix(text, "/.")
	if (last || strings.Contains(text, "/..")) && (through || strings.HasPrefix(text, "/sys/") || strings.HasPrefix(text, "/dev/")) {
		var passed bool
		path, passed = s.resolve(c, text, last)
		through = through || passed
	}
	if path == "" {
		return "", nil
	}
	if path == userfaultDevice {
		s.waits(c)
	}
	var t *tracked
	if !s.owned(path) && !through {
		if t = s.descriptor(c, path); t == nil {
			return "", nil
		}
		path = ""
	}
	// The thread's number may have passed to another one since: the bytes count
	// only if the call still waits.
	if !c.s.listener.valid(c.n.ID) {
		return "", nil
	}
	return path, t
}

// pathText reads a string of the caller's memory that is no longer than a path can be that the
// supervisor answers for.
func (s *Supervisor) pathText(c *Call, addr uint64) (text string, ok bool) {
	var room [longest]byte
	buf := room[:]
	// The first read ends with the page. The next page may be unmapped, and most
	// paths end before it.
	n := min(uint64(len(buf)), 4096-addr%4096)
	if err := procmem.ReadThread(c.Thread(), addr, buf[:n]); err != nil {
		if err == unix.EPERM {
			s.unreadable(c)
		}
		return "", false
	}
	end := bytes.IndexByte(buf[:n], 0)
	if end < 0 && n < uint64(len(buf)) {
		if procmem.ReadThread(c.Thread(), addr+n, buf[n:]) != nil {
			return "", false
		}
		end = bytes.IndexByte(buf, 0)
	}
	if end < 0 {
		return "", false
	}
	return string(buf[:end]), true
}

// unreadable warns, once, of a process that cannot have the device.
func (s *Supervisor) unreadable(c *Call) {
	s.warned.Do(func() {
		if s.cfg.Warn != nil {
			pid := c.Process()
			program, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			s.cfg.Warn(failure.New("run", unix.EPERM, "process %d (%s) does not see the device: the kernel keeps its memory from this user, as its program file may be executed but not read, or it has made itself undumpable", pid, bytes.TrimSpace(program)))
		}
	})
}

// openTree opens a path in the tree, with the symbolic links of the tree.
func (s *Supervisor) openTree(path string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(s.root, path[1:], &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

func (s *Supervisor) openPath(c *Call, dir int32, addr uint64, flags int) (int, error) {
	path, t := s.path(c, dir, addr)
	if t != nil {
		return s.reopen(c, t, flags)
	}
	if path == "" {
		return 0, errInKernel
	}
	if node := s.cfg.Node(path); node != nil && flags&unix.O_PATH == 0 {
		return s.apart(c, func() (int, error) { return s.openNode(c, path, node, flags) })
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY {
		return 0, unix.EACCES
	}
	if s.cfg.Refresh != nil {
		s.cfg.Refresh(path)
	}
	const kept = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_PATH | unix.O_NONBLOCK
	if flags&unix.O_PATH != 0 && flags&unix.O_NOFOLLOW != 0 && s.linkAt(c, path) != "" {
		return s.apart(c, func() (int, error) { return s.openLink(c, addr, path, flags) })
	}
	// The kernel gives no process another one's descriptor with O_PATH.
	fd, err := s.open(c, path, flags&kept&^unix.O_PATH)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if !s.inside.Load() {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			s.inside.Store(true)
		}
	}
	return c.add(fd, -1, flags&unix.O_CLOEXEC != 0)
}

// statTarget opens the file whose attributes a program asks for by stat, fstatat or statx: that of a path, or that of a
// descriptor. If the file is the device file of a device, node describes it; otherwise node is nil.
func (s *Supervisor) statTarget(c *Call, dir int32, addr uint64, flags int) (fd int, node Node, err error) {
	path, follow := "", 0
	if flags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		follow = unix.O_NOFOLLOW
	}
	var first [1]byte
	if flags&unix.AT_EMPTY_PATH != 0 && (addr == 0 || c.Read(addr, first[:]) == nil && first[0] == 0) {
		if f := s.fileOf(c, dir); f != nil {
			path, node = f.path, f.node
		}
	} else if p, t := s.path(c, dir, addr); p != "" {
		path, node = p, s.cfg.Node(p)
	} else if t != nil && t.device != nil && follow == 0 {
		path, node = t.device.path, t.device.node
	}
	if path == "" {
		return -1, nil, errInKernel
	}
	fd, err = s.open(c, path, unix.O_PATH|follow)
	return fd, node, err
}

func (s *Supervisor) statPath(c *Call, dir int32, addr, to uint64, flags int) (int, error) {
	fd, node, err := s.statTarget(c, dir, addr, flags)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	if node != nil {
		st.Mode = st.Mode&^(unix.S_IFMT|0o777) | unix.S_IFCHR | 0o666
		st.Rdev = unix.Mkdev(node.Major(), node.Minor())
		st.Size, st.Blocks = 0, 0
	}
	return deliverStruct(c, &st, to)
}

func (s *Supervisor) statxPath(c *Call, a *[6]uint64) (int, error) {
	fd, node, err := s.statTarget(c, int32(a[0]), a[1], int(a[2]))
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, int(a[3]), &st); err != nil {
		return 0, err
	}
	if node != nil {
		st.Mode = st.Mode&^(unix.S_IFMT|0o777) | unix.S_IFCHR | 0o666
		st.Rdev_major, st.Rdev_minor = node.Major(), node.Minor()
		st.Size, st.Blocks = 0, 0
	}
	return deliverStruct(c, &st, a[4])
}

func (s *Supervisor) faccessat(c *Call, a *[6]uint64) (int, error) {
	return s.accessPath(c, int32(a[0]), a[1], uint32(a[2]))
}

func (s *Supervisor) accessPath(c *Call, dir int32, addr uint64, mode uint32) (int, error) {
	path, _ := s.path(c, dir, addr)
	if path == "" {
		return 0, errInKernel
	}
	fd, err := s.open(c, path, unix.O_PATH)
	if err != nil {
		return 0, err
	}
	unix.Close(fd)
	if mode&unix.W_OK != 0 && s.cfg.Node(path) == nil {
		return 0, unix.EACCES
	}
	return 0, nil
}

func (s *Supervisor) readlinkPath(c *Call, dir int32, addr, to, size uint64) (int, error) {
	path, t := s.path(c, dir, addr)
	if t != nil && t.device != nil {
		return c.giveLink(t.device.path, to, size)
	}
	if path == "" {
		if link := s.ownLink(c, addr); link != "" {
			return c.giveLink(link, to, size)
		}
		return 0, errInKernel
	}
	fd, err := s.open(c, path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil { // ENOENT, of an empty path: no symbolic link
		return 0, unix.EINVAL
	}
	return c.giveLink(string(buf[:n]), to, size)
}

// giveLink delivers a link to a buffer of readlink.
func (c *Call) giveLink(link string, to, size uint64) (int, error) {
	link = link[:min(uint64(len(link)), size)]
	if link == "" {
		return 0, unix.EINVAL
	}
	return c.deliver([]byte(link), to, len(link))
}

// Files of the tree have no extended attributes: a query of one fails, the list of all is empty.

func (s *Supervisor) getxattr(c *Call, a *[6]uint64) (int, error) {
	if path, _ := s.path(c, unix.AT_FDCWD, a[0]); path != "" {
		return 0, unix.ENODATA
	}
	return 0, errInKernel
}

func (s *Supervisor) listxattr(c *Call, a *[6]uint64) (int, error) {
	if path, _ := s.path(c, unix.AT_FDCWD, a[0]); path != "" {
		return 0, nil
	}
	return 0, errInKernel
}
