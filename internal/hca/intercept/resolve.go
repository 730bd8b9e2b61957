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

// getcwd answers getcwd of a caller whose current folder is in the tree.
func (s *Supervisor) getcwd(c *Call) {
	a := &c.n.Args
	if s.inside.Load() {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", c.Thread())); err == nil {
			if seen, tree := s.seen(to); tree {
				if text := append([]byte(seen), 0); uint64(len(text)) > a[1] {
					c.Fail(unix.ERANGE)
				} else {
					c.deliver(text, a[0], len(text))
				}
				return
			}
		}
	}
	c.Continue()
}

// statfs answers statfs and fstatfs of the tree as for the folder that it stands for: programs that check
// that a file is of sysfs find that it is.
func (s *Supervisor) statfs(c *Call, path string, to uint64) {
	for path != "/" {
		var st unix.Statfs_t
		path = filepath.Dir(path)
		if s.owned(path) || unix.Statfs(path, &st) != nil {
			continue
		}
		deliverStruct(c, &st, to)
		return
	}
	c.Continue()
}

func (s *Supervisor) statfsPath(c *Call) {
	if path, _ := s.path(c, unix.AT_FDCWD, c.n.Args[0]); path != "" {
		s.statfs(c, path, c.n.Args[1])
		return
	}
	c.Continue()
}

func (s *Supervisor) statfsDescriptor(c *Call) {
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.Thread(), int32(c.n.Args[0])))
	if err == nil {
		if path, tree := s.seen(to); tree {
			s.statfs(c, path, c.n.Args[1])
			return
		}
	}
	c.Continue()
}

// openLink answers an open, with O_PATH and O_NOFOLLOW, of a symbolic link of the tree, whose path is at
// an address of the caller's.
func (s *Supervisor) openLink(c *Call, addr uint64, path string, flags int) {
	text, ok := s.pathText(c, addr)
	if !ok || strings.HasSuffix(text, "/") {
		c.Fail(unix.ENOENT) // another thread has changed the path
		return
	}
	s.inside.Store(true)
	folder, err := s.open(c, filepath.Dir(path), unix.O_DIRECTORY)
	if err != nil {
		c.failWith(err)
		return
	}
	defer unix.Close(folder)
	if err := c.openLink(folder, addr+uint64(strings.LastIndexByte(text, '/')+1), flags); err != nil {
		s.refuse(c, "open "+path, err)
	}
}

// chdir answers chdir to a folder of the tree, which the kernel does not find at that path.
func (s *Supervisor) chdir(c *Call) {
	path, _ := s.path(c, unix.AT_FDCWD, c.n.Args[0])
	if path == "" {
		c.Continue()
		return
	}
	fd, ok := s.openOrFail(c, path, unix.O_DIRECTORY)
	if !ok {
		return
	}
	defer unix.Close(fd)
	s.inside.Store(true)
	if err := c.enter(fd); err != nil {
		s.refuse(c, "chdir "+path, err)
	}
}
