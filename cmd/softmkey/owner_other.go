//go:build !unix

package main

import "os"

// keepOwner does nothing: files here have no owner to keep.
func keepOwner(*os.File, os.FileInfo) {}
