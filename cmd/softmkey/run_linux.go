//go:build linux && (amd64 || arm64)

package main

import "github.com/softmkey/softmkey/internal/hca/intercept"

// softmkey run starts this binary again as the guard of the program. In that process Child does
// not return.
func init() { intercept.Child() }
