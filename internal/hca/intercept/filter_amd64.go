//go:build linux

package intercept

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	foreignABI = 0x40000000 // x32 calls carry this bit
	fstatatNr  = unix.SYS_NEWFSTATAT
)

// archCalls are the system calls that name a file, and that arm64 does not have.
var archCalls = []row{
	{nr: unix.SYS_OPEN, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.openPath(c, unix.AT_FDCWD, a[0], int(a[1]))
	}},
	{nr: unix.SYS_STAT, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.statPath(c, unix.AT_FDCWD, a[0], a[1], 0)
	}},
	{nr: unix.SYS_LSTAT, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.statPath(c, unix.AT_FDCWD, a[0], a[1], unix.AT_SYMLINK_NOFOLLOW)
	}},
	{nr: unix.SYS_ACCESS, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.accessPath(c, unix.AT_FDCWD, a[0], uint32(a[1]))
	}},
	{nr: unix.SYS_READLINK, handle: func(s *Supervisor, c *Call, a *[6]uint64) (int, error) {
		return s.readlinkPath(c, unix.AT_FDCWD, a[0], a[1], a[2])
	}},
}
