//go:build !(linux && (amd64 || arm64))

package session

import "errors"

// Run returns an error: intercepting system calls needs Linux on amd64 or arm64.
func Run(Config) (status int, err error) {
	return -1, errors.New("run: intercepting system calls needs Linux on amd64 or arm64")
}
