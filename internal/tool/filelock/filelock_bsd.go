//go:build unix && !linux && !solaris && !aix

package filelock

import "os"

// Inherited returns nil: a lock on an inherited file would stay with the parent process.
func Inherited(*os.File, bool) error { return nil }

func ownLock(os.FileInfo) bool { return false }

func holder(os.FileInfo) string { return "" }
