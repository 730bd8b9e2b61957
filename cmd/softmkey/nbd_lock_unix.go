//go:build unix && !solaris && !aix

package main

import (
	"errors"
	"os"
	"syscall"
)

// lockImage locks an image until it is closed. A shared lock, for servers that only read, excludes
// servers that write; any other lock excludes all servers.
func lockImage(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another server has it, or another program has locked it")
	}
	return nil // a file system without locks is no error
}
