//go:build linux

package intercept

import "golang.org/x/sys/unix"

// Calls that arm64 does not have carry numbers that no call has.
const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	foreignABI = 0
	openNr     = 1<<20 + iota
	statNr
	lstatNr
	accessNr
	readlinkNr
	fstatatNr = unix.SYS_FSTATAT
)

// pathCalls are the system calls that name a file.
var pathCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_FSTATAT, unix.SYS_OPENAT2, unix.SYS_STATX,
	unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
	unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR,
}
