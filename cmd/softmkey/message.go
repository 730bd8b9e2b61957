package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/lineout"
)

// message prints a line for people, usually on standard error. The names of files and other text
// from outside cannot forge a second line or control the terminal.
func message(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "softmkey: %s\n", lineout.Printable(fmt.Sprintf(format, args...)))
}

// queueLines puts bounded queues before a server's standard output and standard error, so that no goroutine that
// serves a client waits for a terminal. The command calls end last, with its error, and returns what end returns.
func queueLines(c *cobra.Command, asJSON bool) (end func(error) error) {
	lost := linesLost
	if asJSON {
		lost = func(n uint64) string { return fmt.Sprintf("{\"lines_lost\":%d}\n", n) }
	}
	out, errs := lineout.New(c.OutOrStdout(), lost), lineout.New(c.ErrOrStderr(), lost)
	c.SetOut(out)
	c.SetErr(errs)
	return func(err error) error {
		closed := errors.Join(errs.Close(), out.Close()) // the checkedWriter keeps other errors
		c.SetOut(nil)
		c.SetErr(nil)
		var stopped signalError // of a write that was late after the signal
		if errors.Is(closed, lineout.ErrLate) || errors.As(closed, &stopped) {
			return reported(exitFailed) // nobody would read more
		}
		return err
	}
}

// linesLost returns the line that stands where lines were lost.
func linesLost(n uint64) string {
	return fmt.Sprintf("softmkey: warning: lines that are missing here, because they were not read in time: %d\n", n)
}

// lines returns the text of an error that joins others, one of each line.
func lines(err error) []string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, lines(e)...)
		}
		return all
	}
	return []string{err.Error()}
}
