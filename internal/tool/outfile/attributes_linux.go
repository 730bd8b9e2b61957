package outfile

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

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
