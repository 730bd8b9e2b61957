// Command softmkey protects, checks, strips, converts, encrypts and decrypts files
// with the block signatures and the encryption of mlx5 memory keys.
//
// The manual is in its help texts, from which the pages in docs/man are made.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/softmkey/softmkey/sig"
)

// The exit statuses. A command that a signal has ended has 128 and the signal's
// number, as shells count it.
const (
	exitOK     = 0
	exitBad    = 1 // a signature was bad
	exitFailed = 2 // usage, configuration, input and output
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes the command line and returns the exit status.
func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-interrupted
		signal.Stop(interrupted) // the next one ends the process at once
		cancel(signalError{s})
	}()

	root := newRoot()
	root.SetArgs(args)
	return status(root.ExecuteContext(ctx))
}

// status tells of an error and returns the exit status that it means.
func status(err error) int {
	var bad *sig.Error
	var stopped signalError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &bad):
		return exitBad // told when it was found
	case errors.As(err, &stopped):
		fmt.Fprintf(os.Stderr, "softmkey: %v\n", err)
		if n, ok := stopped.Signal.(syscall.Signal); ok {
			return 128 + int(n)
		}
		return exitFailed
	}
	fmt.Fprintf(os.Stderr, "softmkey: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "Run '%s --help' for its usage.\n", usage.command)
	}
	return exitFailed
}

// signalError ends a command that a signal has interrupted.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return "stopped by signal: " + e.String() }

// usageError is a mistake in the command line.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }
