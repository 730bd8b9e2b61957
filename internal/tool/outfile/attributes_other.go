//go:build unix && !linux

package outfile

import "os"

func hasACL(*os.File) bool { return false }

func keepAttributes(*os.File, *os.File) {}
