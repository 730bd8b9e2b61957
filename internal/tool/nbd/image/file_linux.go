package image

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Discard implements Store: it makes a hole, if the file system or the device can.
func (f File) Discard(off, n int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var punch error
	err = raw.Control(func(fd uintptr) {
		for {
			punch = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, f.Offset+off, n)
			if punch != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case err != nil:
		return err
	case errors.Is(punch, syscall.EOPNOTSUPP), errors.Is(punch, syscall.ENOSYS), errors.Is(punch, syscall.EINVAL): // EINVAL: a device with larger sectors
		return nil
	}
	return punch
}
