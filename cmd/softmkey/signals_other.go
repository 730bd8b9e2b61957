//go:build !unix

package main

import (
	"os"
	"syscall"
)

// endingSignals are the signals after which a command cleans up before it ends.
var endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
