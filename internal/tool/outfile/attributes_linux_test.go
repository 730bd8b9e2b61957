package outfile

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// acl returns the ACL that gives the user nobody the rights rw, in the kernel's form.
func acl() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, entry := range []struct {
		tag, rights uint16
		id          uint32
	}{{1, 6, ^uint32(0)}, {2, 6, 65534}, {4, 0, ^uint32(0)}, {0x10, 6, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, entry.tag)
		b = binary.LittleEndian.AppendUint16(b, entry.rights)
		b = binary.LittleEndian.AppendUint32(b, entry.id)
	}
	return b
}

// TestAttributesAreKept replaces files with and without an ACL, in a directory with and without
// a default ACL, with and without O_TMPFILE.
func TestAttributesAreKept(t *testing.T) {
	get := func(name, attribute string) []byte {
		b := make([]byte, 1000)
		n, err := unix.Getxattr(name, attribute, b)
		if err != nil {
			return nil
		}
		return b[:n]
	}
	for _, unnamed := range []bool{true, false} {
		unnamedFiles = unnamed
		t.Cleanup(func() { unnamedFiles = true })
		dir := t.TempDir()
		with, without := filepath.Join(dir, "with"), filepath.Join(dir, "without")
		for _, name := range []string{with, without} {
			fatal.If(t, os.WriteFile(name, []byte("old"), 0o600))
		}
		if err := unix.Setxattr(with, accessACL, acl(), 0); err != nil {
			t.Skipf("NOT RUN: the file system of the temporary directory has no ACLs: %v", err)
		}
		if err := unix.Setxattr(with, "user.origin", []byte("backup"), 0); err != nil {
			t.Skipf("NOT RUN: the file system of the temporary directory has no user attributes: %v", err)
		}
		fatal.If(t, unix.Setxattr(dir, "system.posix_acl_default", acl(), 0))
		for _, name := range []string{with, without} {
			fatal.If(t, createFile(t, name, Options{}, "new").Commit())
		}
		if got := get(with, accessACL); !bytes.Equal(got, acl()) {
			t.Errorf("unnamed %v: the ACL is %x, want %x", unnamed, got, acl())
		}
		if got := get(with, "user.origin"); string(got) != "backup" {
			t.Errorf("unnamed %v: user.origin is %q", unnamed, got)
		}
		if got := get(without, accessACL); got != nil {
			t.Errorf("unnamed %v: a file without an ACL has got %x", unnamed, got)
		}
		info, err := os.Stat(without)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("unnamed %v: mode %v, %v", unnamed, info.Mode(), err)
		}
	}
}
