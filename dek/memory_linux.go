package dek

import "golang.org/x/sys/unix"

// hide keeps the pages out of core dumps, and a forked child's copy empty. Kernels
// before 4.14 do not know the latter, and nothing else depends on it.
func hide(m []byte) {
	unix.Madvise(m, unix.MADV_DONTDUMP)
	unix.Madvise(m, unix.MADV_WIPEONFORK)
}
