//go:build linux && (amd64 || arm64)

package intercept

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// base returns the folder at which a relative path of the caller begins, as programs see it, if the path
// may lead to one of the supervisor's; otherwise the empty path. tree is set if the folder is one of the
// tree.
func (s *Supervisor) base(c *Call, dir int32, path string) (folder string, tree bool) {
	if !s.inside.Load() && !s.named(path) {
		return "", false
	}
	link := fmt.Sprintf("/proc/%d/cwd", c.Thread())
	if dir != unix.AT_FDCWD {
		link = fmt.Sprintf("/proc/%d/fd/%d", c.Thread(), dir)
	}
	to, err := os.Readlink(link)
	if err != nil {
		return "", false
	}
	if folder, tree = s.seen(to); tree {
		return folder, true
	}
	return to, false
}

// seen returns the path under which programs see a file of the tree; tree is false if it is none.
func (s *Supervisor) seen(path string) (seen string, tree bool) {
	rest, ok := strings.CutPrefix(path, s.cfg.Root)
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return "", false
	case rest == "":
		return "/", true
	}
	return rest, true
}

// named reports whether a path has the name of one of the supervisor's files.
func (s *Supervisor) named(path string) bool {
	return slices.ContainsFunc(s.names, func(name string) bool { return strings.Contains(path, name) })
}

// namesOf returns the last elements of paths, without those that contain another one.
func namesOf(paths ...[]string) (names []string) {
	for _, path := range slices.Concat(paths...) {
		name := filepath.Base(path)
		if !slices.ContainsFunc(names, func(other string) bool { return strings.Contains(name, other) }) {
			names = append(names, name)
		}
	}
	return names
}

// mostLinks bounds the symbolic links of one path, as in the kernel.
const mostLinks = 40

// resolve returns a path without its "..". After a symbolic link, ".." is the folder above the link's target, as in the
// kernel. If last is set, the path ends with a slash, and its last link is followed, too. through is set if the path leads
// through the tree.
func (s *Supervisor) resolve(c *Call, path string, last bool) (resolved string, through bool) {
	left, at := strings.Split(path, "/"), "/"
	for links := 0; last && len(left) > 0 || slices.Contains(left, ".."); {
		name := left[0]
		left = left[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		through = through || s.owned(next)
		if to := s.linkAt(c, next); to != "" && links < mostLinks {
			links++
			left = append(strings.Split(to, "/"), left...)
			if to[0] == '/' {
				at = "/"
			}
			continue
		}
		at = next
	}
	return filepath.Join(at, strings.Join(left, "/")), through
}

// linkAt returns where the symbolic link at a path leads, the empty path if there is none.
func (s *Supervisor) linkAt(c *Call, path string) string {
	fd, err := s.open(c, path, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [longest]byte
	n, err := unix.Readlinkat(fd, "", buf[:])
	if err != nil || n == len(buf) {
		return ""
	}
	return string(buf[:n])
}

// open opens a file for the caller: of the tree, or of the system if the path led there through the tree.
func (s *Supervisor) open(c *Call, path string, flags int) (int, error) {
	if s.owned(path) {
		return s.openTree(path, flags)
	}
	if flags&unix.O_PATH == 0 && !sameUser(c.Thread()) {
		return -1, unix.EACCES // the supervisor's rights are not the caller's
	}
	return unix.Open(fmt.Sprintf("/proc/%d/root%s", c.Thread(), path), flags|unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
}

// sameUser reports whether a thread opens files with the rights of this process's user.
func sameUser(thread int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	ids := strings.Fields(field(status, "Uid:")) // real, effective, saved, of files
	return err == nil && len(ids) == 4 && ids[3] == fmt.Sprint(os.Geteuid())
}

// ownLink returns where a link of the caller's in /proc leads, if that is in the tree: to a folder that it
// has open, or that is its current one.
func (s *Supervisor) ownLink(c *Call, addr uint64) string {
	if !s.inside.Load() {
		return ""
	}
	text, ok := s.pathText(c, addr)
	if !ok {
		return ""
	}
	path := clean(text)
	if rest, ok := strings.CutPrefix(path, "/proc/self/"); ok {
		path = fmt.Sprintf("/proc/%d/%s", c.Process(), rest)
	}
	if !strings.HasPrefix(path, "/proc/") || !strings.HasSuffix(path, "/cwd") && !strings.HasSuffix(filepath.Dir(path), "/fd") {
		return ""
	}
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	seen, _ := s.seen(to)
	return seen
}

// seenAt is seen for the file that a link leads to, which is in the caller's folder of /proc.
func (s *Supervisor) seenAt(c *Call, link string) (seen string, tree bool) {
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", c.Thread(), link))
	if err != nil {
		return "", false
	}
	return s.seen(to)
}

// fchdir notes that the caller's current folder will be in the tree.
func (s *Supervisor) fchdir(c *Call, a *[6]uint64) (int, error) {
	if _, tree := s.seenAt(c, fmt.Sprintf("fd/%d", int32(a[0]))); tree {
		s.inside.Store(true)
	}
	return 0, errInKernel
}

// getcwd answers getcwd of a caller whose current folder is in the tree.
func (s *Supervisor) getcwd(c *Call, a *[6]uint64) (int, error) {
	if !s.inside.Load() {
		return 0, errInKernel
	}
	seen, tree := s.seenAt(c, "cwd")
	text := append([]byte(seen), 0)
	switch {
	case !tree:
		return 0, errInKernel
	case uint64(len(text)) > a[1]:
		return 0, unix.ERANGE
	}
	return c.deliver(text, a[0], len(text))
}

// statfs answers statfs and fstatfs of the tree as for the folder that it stands for: programs that check
// that a file is of sysfs find that it is.
func (s *Supervisor) statfs(c *Call, path string, to uint64) (int, error) {
	for path != "" && path != "/" {
		var st unix.Statfs_t
		path = filepath.Dir(path)
		if !s.owned(path) && unix.Statfs(path, &st) == nil {
			return deliverStruct(c, &st, to)
		}
	}
	return 0, errInKernel
}

func (s *Supervisor) statfsPath(c *Call, a *[6]uint64) (int, error) {
	path, _ := s.path(c, unix.AT_FDCWD, a[0])
	return s.statfs(c, path, a[1])
}

func (s *Supervisor) statfsDescriptor(c *Call, a *[6]uint64) (int, error) {
	path, _ := s.seenAt(c, fmt.Sprintf("fd/%d", int32(a[0])))
	return s.statfs(c, path, a[1])
}

// openLink answers an open, with O_PATH and O_NOFOLLOW, of a symbolic link of the tree, whose path is at
// an address of the caller's.
func (s *Supervisor) openLink(c *Call, addr uint64, path string, flags int) (int, error) {
	text, ok := s.pathText(c, addr)
	if !ok || strings.HasSuffix(text, "/") {
		return 0, unix.ENOENT // another thread has changed the path
	}
	s.inside.Store(true)
	folder, err := s.open(c, filepath.Dir(path), unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(folder)
	if err := c.openLink(folder, addr+uint64(strings.LastIndexByte(text, '/')+1), flags); err != nil {
		return s.refuse(c, "open "+path, err)
	}
	return 0, errAnswered
}

// chdir answers chdir to a folder of the tree, which the kernel does not find at that path.
func (s *Supervisor) chdir(c *Call, a *[6]uint64) (int, error) {
	path, _ := s.path(c, unix.AT_FDCWD, a[0])
	if path == "" {
		return 0, errInKernel
	}
	fd, err := s.open(c, path, unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	s.inside.Store(true)
	if err := c.enter(fd); err != nil {
		return s.refuse(c, "chdir "+path, err)
	}
	return 0, errAnswered
}
