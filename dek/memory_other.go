//go:build !unix && !windows

package dek

// lockedPages returns memory of the Go heap: this system has no locked memory
// that the package supports.
func lockedPages(n int) ([]byte, error) { return make([]byte, n), nil }

func unlockPages([]byte) {}
