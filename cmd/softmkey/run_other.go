//go:build !(linux && (amd64 || arm64))

package main

import (
	"errors"
	"os"
)

func (f *runFlags) run([]string, [3]*os.File) error {
	return errors.New("run: intercepting system calls needs Linux on amd64 or arm64")
}
