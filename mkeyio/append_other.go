//go:build !unix

package mkeyio

import "os"

// appends reports false: whether a file is in append mode is not known here.
func appends(*os.File) bool { return false }
