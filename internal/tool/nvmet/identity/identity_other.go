//go:build !linux

package identity

import (
	"os"
	"path/filepath"
)

// machine returns the name of this machine.
func machine() string {
	name, _ := os.Hostname() // without a name, the file alone decides
	return name
}

// facts returns the path of an image.
func facts(f *os.File) ([]string, error) {
	path, err := filepath.Abs(f.Name())
	return []string{path}, err
}
