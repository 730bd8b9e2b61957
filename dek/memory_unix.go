//go:build unix

package dek

import "golang.org/x/sys/unix"

// lockedPages maps n bytes that are not swapped.
func lockedPages(n int) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if err := unix.Mlock(m); err != nil {
		unix.Munmap(m)
		return nil, err
	}
	hide(m)
	return m, nil
}

// unlockPages gives them back. The errors can only be those of wrong arguments.
func unlockPages(m []byte) {
	unix.Munlock(m)
	unix.Munmap(m)
}
