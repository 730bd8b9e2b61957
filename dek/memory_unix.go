//go:build unix

package dek

import (
	"errors"

	"golang.org/x/sys/unix"
)

// lockedPages maps n bytes that are never swapped.
func lockedPages(n int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Mlock(m), hide(m)); err != nil {
		unix.Munmap(m)
		return nil, err
	}
	return m, nil
}

// unlockPages unmaps the pages of lockedPages. It can fail only on wrong arguments.
func unlockPages(m []byte) {
	unix.Munlock(m)
	unix.Munmap(m)
}
