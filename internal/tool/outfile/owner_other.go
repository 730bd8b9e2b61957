//go:build !unix

package outfile

import "os"

// keepOwner does nothing: files here have no owner to keep.
func keepOwner(*os.File, os.FileInfo) {}

// sameDevice reports false: there are no device nodes here.
func sameDevice(os.FileInfo, os.FileInfo) bool { return false }

// syncDirectory does nothing: directories here cannot be flushed.
func syncDirectory(string) error { return nil }
