// Package filelock locks the files that commands read and write against each other: a
// file that a server writes to is not replaced, and no command reads half of a write.
//
// The locks are those of flock(2) on Unix: they are advisory, belong to an open file, and
// end when it is closed or the process ends. A lock that the process has inherited, as
// under flock(1), is its own and does not exclude it. On systems and file systems without
// such locks, and for files that are neither regular nor block devices, all functions
// succeed and lock nothing.
package filelock

import (
	"cmp"
	"fmt"
	"os"
)

// HeldError is returned for a file that another program has locked.
type HeldError struct {
	Name   string // the file
	Holder string // the program that has the lock, with its process; empty if it is not known
	Shared bool   // the lock that was refused is a shared one: the holder writes
}

// Error names the file and the program that has it.
func (e *HeldError) Error() string {
	holder := cmp.Or(e.Holder, "another program")
	verb := "uses"
	if e.Shared {
		verb = "writes"
	}
	return fmt.Sprintf("%s: %s %s it and has locked it", e.Name, holder, verb)
}

// Exclusive locks f for writing, until it is closed: no other program has a lock. It
// returns a *HeldError at once if one has.
func Exclusive(f *os.File) error { return lock(f, false) }

// Shared locks f for reading, until it is closed: no other program has an exclusive lock.
// It returns a *HeldError at once if one has.
func Shared(f *os.File) error { return lock(f, true) }

// lockable reports whether a file is one that commands lock.
func lockable(i os.FileInfo) bool {
	return i.Mode().IsRegular() || i.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice
}
