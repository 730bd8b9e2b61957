//go:build linux && (amd64 || arm64)

package main

import "github.com/softmkey/softmkey/internal/hca/intercept"

// The process that run starts as the program's guard branches off here.
func init() { intercept.Child() }
