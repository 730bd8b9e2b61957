//go:build linux

package intercept

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	foreignABI = 0x40000000 // x32 calls carry this bit
	statNr     = unix.SYS_STAT
	lstatNr    = unix.SYS_LSTAT
	openNr     = unix.SYS_OPEN
	accessNr   = unix.SYS_ACCESS
	readlinkNr = unix.SYS_READLINK
	fstatatNr  = unix.SYS_NEWFSTATAT
)

// pathCalls are the system calls that name a file.
var pathCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_NEWFSTATAT, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS,
	unix.SYS_READLINK, unix.SYS_OPENAT2, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
	unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR,
}
