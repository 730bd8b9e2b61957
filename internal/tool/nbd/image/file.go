package image

import "os"

// File is an *os.File as a store.
type File struct{ *os.File }
