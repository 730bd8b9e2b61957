//go:build !unix || solaris || aix

package filelock

import "os"

func lock(*os.File, bool) error { return nil }

// Inherited returns nil: there are no locks here.
func Inherited(*os.File, bool) error { return nil }
