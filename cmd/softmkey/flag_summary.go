package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/summary"
)

// summaryFlag is the flag --summary, with the table of the requests that were counted for it.
type summaryFlag struct {
	command string
	to      string // file; "": the flag was not given, "-": standard error
	counted *summary.Table
}

func (f *summaryFlag) bind(c *cobra.Command, command string) {
	f.command, f.counted = command, new(summary.Table)
	c.Flags().StringVar(&f.to, "summary", "", "print at the end the number of requests, bytes, latencies and errors of each operation on standard error, or with =FILE to a file, as JSON if its name ends in .json")
	c.Flags().Lookup("summary").NoOptDefVal = "-"
}

func (f *summaryFlag) given() bool { return f.to != "" }

// table returns the table that counts requests, or nil if the flag was not given.
func (f *summaryFlag) table() *summary.Table {
	if !f.given() {
		return nil
	}
	return f.counted
}

// write writes a report to the file or to standard error.
func (f *summaryFlag) write(standardError io.Writer, report summary.Report) error {
	if f.to == "-" {
		_, err := report.WriteTo(standardError)
		return err
	}
	var text bytes.Buffer
	if strings.HasSuffix(f.to, ".json") {
		encodeJSON(&text, report)
	} else if _, err := report.WriteTo(&text); err != nil {
		return err
	}
	if err := os.WriteFile(f.to, text.Bytes(), 0o666); err != nil {
		return fmt.Errorf("%s: --summary: %w", f.command, err)
	}
	return nil
}
