//go:build !unix

package main

import (
	"os"
	"syscall"
)

// endingSignals are the signals that end a command in good order.
var endingSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}
