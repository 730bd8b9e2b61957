package outfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// exclusive is the flag with which a block device that the system uses is not opened.
const exclusive = unix.O_EXCL

// fixed returns why no file can be renamed to the name of a file, or "". The error would
// otherwise come when the whole output is written.
func fixed(name string, file os.FileInfo) string {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_BASIC_STATS, &s); err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return "it is a mount point"
	}
	dir, err := os.Stat(filepath.Dir(name))
	if err != nil || dir.Mode()&os.ModeSticky == 0 || os.Geteuid() == 0 {
		return ""
	}
	of, ok1 := file.Sys().(*syscall.Stat_t)
	in, ok2 := dir.Sys().(*syscall.Stat_t)
	if me := uint32(os.Geteuid()); ok1 && ok2 && of.Uid != me && in.Uid != me {
		return "it belongs to another user, and the sticky bit of its directory forbids that"
	}
	return ""
}

// accessACL is the extended attribute that has a file's ACL.
const accessACL = "system.posix_acl_access"

// hasACL reports whether a file has an ACL beside its mode.
func hasACL(f *os.File) bool {
	n, err := unix.Fgetxattr(int(f.Fd()), accessACL, nil)
	return err == nil && n > 0
}

// keepAttributes gives f the extended attributes of old, among them its ACL. An attribute that
// the user may not set, or that the file system does not have, is left out.
func keepAttributes(f, old *os.File) {
	to, from := int(f.Fd()), int(old.Fd())
	if !hasACL(old) {
		_ = unix.Fremovexattr(to, accessACL) // one that f has inherited from its directory
	}
	list := make([]byte, 64<<10) // the limit of the kernel
	n, err := unix.Flistxattr(from, list)
	if err != nil {
		return
	}
	value := make([]byte, 64<<10)
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		name := string(name)
		switch {
		case name == "", strings.HasPrefix(name, "security.") && name != "security.selinux":
			continue // capabilities and hashes belong to the old content
		}
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}
