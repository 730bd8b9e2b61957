//go:build unix && !solaris && !aix

package filelock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func lock(f *os.File, shared bool) error {
	info, err := f.Stat()
	if err != nil || !lockable(info) {
		return err
	}
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	// udev locks a block device for the moment in which it looks at its content.
	tries := 1
	if !info.Mode().IsRegular() {
		tries = 20
	}
	var held error
	for range tries {
		if tries > 1 && held != nil {
			time.Sleep(50 * time.Millisecond)
		}
		err = raw.Control(func(fd uintptr) { held = syscall.Flock(int(fd), how|syscall.LOCK_NB) })
		if err != nil || !errors.Is(held, syscall.EWOULDBLOCK) {
			return err // a file system without locks is no error
		}
	}
	if ownLock(info) {
		return nil
	}
	return &HeldError{Name: f.Name(), Holder: holder(info), Shared: shared}
}
