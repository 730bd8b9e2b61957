// Command softmkey protects, checks, strips, converts, encrypts and decrypts files
// with the block signatures and the encryption of mlx5 memory keys, and runs software
// RDMA devices.
//
// The help texts are the manual. The pages in docs/man are made from them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/softmkey/softmkey/internal/hca/session"
	"github.com/softmkey/softmkey/sig"
)

// The exit statuses. A command that a signal ended has 128 plus the signal's number,
// as in shells.
const (
	exitOK     = 0
	exitBad    = 1 // a signature was bad
	exitFailed = 2 // an error of usage, configuration, input or output
)

func main() { os.Exit(run(os.Args[1:])) }

// ending ends with the first signal, as the context of the command does. Files are opened in many
// places, also by the values of flags, and a named pipe may keep a program waiting.
var ending = context.Background()

// errs is standard error.
var errs *checkedWriter

// run executes the command line and returns the exit status.
func run(args []string) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	interrupted := make(chan os.Signal, 1)
	for _, s := range endingSignals {
		// nohup, and a shell for a job in the background, start a command with a
		// signal ignored. Notify would undo that.
		if !signal.Ignored(s) {
			signal.Notify(interrupted, s)
		}
	}
	go func() {
		s := <-interrupted
		signal.Stop(interrupted) // a second signal ends the process at once
		cancel(signalError{s})
	}()

	ending = ctx
	root := newRoot()
	root.SetArgs(args)
	out := &checkedWriter{Writer: &stdout{}}
	errs = &checkedWriter{Writer: os.Stderr}
	root.SetOut(out)
	root.SetErr(errs)
	command, err := root, checkLine(root, args)
	if err == nil {
		command, err = root.ExecuteContextC(ctx)
	}
	code := status(err)
	if _, printed := err.(reported); code > exitBad && err != nil && !printed { // with exitBad, the command's outcome was the last line
		reportFailure(command, err, code)
	}
	if err := cmp.Or(out.failed(), errs.failed()); err != nil && code <= exitBad {
		return status(err)
	}
	return code
}

// status prints an error and returns the exit status that it means.
func status(err error) int {
	var bad *sig.Error
	var stopped signalError
	var program programStatus
	var start *session.StartError
	var printed printedError
	var done reported
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &done):
		return int(done)
	case errors.As(err, &bad):
		return exitBad // the bad block was printed when it was found
	case errors.As(err, &printed):
		return exitFailed
	case errors.As(err, &program):
		return int(program) // the exit status of the program that "softmkey run" has run
	case errors.As(err, &start):
		printError(err)
		return start.Status
	case errors.As(err, &stopped):
		printError(err)
		if n, ok := stopped.Signal.(syscall.Signal); ok {
			return 128 + int(n)
		}
		return exitFailed
	}
	printError(err)
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(errs, "Run '%s --help' for its usage.\n", usage.command)
	}
	return exitFailed
}

// printedError is an error that was printed when it happened, before the end of the command.
type printedError struct{ error }

// Unwrap returns the error.
func (e printedError) Unwrap() error { return e.error }

func printError(err error) {
	for _, line := range lines(err) {
		message(errs, "%s", line)
	}
}

// reported is the exit status of a command that has printed everything about its errors.
type reported int

func (r reported) Error() string { return fmt.Sprintf("exit status %d", int(r)) }

// signalError is the cause of a context that a signal has cancelled.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return "stopped by signal: " + e.String() }

// usageError is a mistake in the command line.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }
