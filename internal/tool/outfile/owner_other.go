//go:build !unix

package outfile

import "os"

// exclusive is no flag here: the system does not tell whether a device is mounted.
const exclusive = 0

func fixed(string, os.FileInfo) string { return "" }

// keepRights gives f the mode of the file that it will replace. Files here have no owner to keep.
func keepRights(f, _ *os.File, info os.FileInfo) error { return f.Chmod(info.Mode().Perm()) }

// sameDevice reports false: there are no device nodes here.
func sameDevice(os.FileInfo, os.FileInfo) bool { return false }

// syncDirectory does nothing: directories here cannot be flushed.
func syncDirectory(string) error { return nil }
