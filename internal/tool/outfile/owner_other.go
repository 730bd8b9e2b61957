//go:build !unix

package outfile

import "os"

// keepRights gives f the mode of the file that it will replace. Files here have no owner to keep.
func keepRights(f, _ *os.File, info os.FileInfo) error { return f.Chmod(info.Mode().Perm()) }

// sameDevice reports false: there are no device nodes here.
func sameDevice(os.FileInfo, os.FileInfo) bool { return false }

// syncDirectory does nothing: directories here cannot be flushed.
func syncDirectory(string) error { return nil }
