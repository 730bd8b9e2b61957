package image

import (
	"errors"
	"iter"
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

// Holes yields the ranges of n bytes from off on that the file system has no data of. A block device has none.
func (f File) Holes(off, n int64) iter.Seq2[int64, int64] {
	return func(yield func(from, to int64) bool) {
		for at, end := f.Offset+off, f.Offset+off+n; at < end; {
			data, err := f.Seek(at, unix.SEEK_DATA)
			if errors.Is(err, syscall.ENXIO) { // a hole up to the end of the file
				data, err = end, nil
			}
			if data = min(data, end); err != nil || data > at && !yield(at-f.Offset, data-f.Offset) {
				return
			}
			if at, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
				return
			}
		}
	}
}
