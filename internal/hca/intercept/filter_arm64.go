//go:build linux

package intercept

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	foreignABI = 0
	fstatatNr  = unix.SYS_FSTATAT
)

var archCalls []row
