//go:build unix && !linux

package outfile

import "os"

// exclusive is no flag here: the system does not tell whether a device is mounted.
const exclusive = 0

func fixed(string, os.FileInfo) string { return "" }

func hasACL(*os.File) bool { return false }

func keepAttributes(*os.File, *os.File) {}
