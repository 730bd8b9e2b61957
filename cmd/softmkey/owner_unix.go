//go:build unix

package main

import (
	"os"
	"syscall"
)

// keepOwner gives f the owner of the file that it will replace, as far as the user
// may do that.
func keepOwner(f *os.File, old os.FileInfo) {
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(s.Uid), int(s.Gid))
	}
}
