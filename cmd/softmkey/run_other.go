//go:build !(linux && (amd64 || arm64))

package main

import "errors"

func (f *runFlags) run([]string) error {
	return errors.New("run: intercepting system calls needs Linux on amd64 or arm64")
}
