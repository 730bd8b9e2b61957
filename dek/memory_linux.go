package dek

import "golang.org/x/sys/unix"

// hide keeps the pages out of core dumps and makes them empty in forked
// children. Kernels before 4.14 do not support the second, and nothing depends
// on it.
func hide(m []byte) error {
	unix.Madvise(m, unix.MADV_WIPEONFORK)
	return unix.Madvise(m, unix.MADV_DONTDUMP)
}
