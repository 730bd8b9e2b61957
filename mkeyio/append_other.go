//go:build !unix

package mkeyio

import "os"

// appends reports false, because this system does not tell whether a file is in
// append mode.
func appends(*os.File) bool { return false }
