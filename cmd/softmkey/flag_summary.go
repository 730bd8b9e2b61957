package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/tool/outfile"
)

// summaryFlag is the flag --summary, with the table of the requests that were counted for it.
type summaryFlag struct {
	command string
	to      string // file; "": the flag was not given, "-": standard error
	file    *outfile.File
	counted *summary.Table
}

func (f *summaryFlag) bind(c *cobra.Command, command string) {
	f.command, f.counted = command, new(summary.Table)
	c.Flags().StringVar(&f.to, "summary", "", "print at the end the number of requests, bytes, latencies and errors of each operation on standard error, or with =`FILE` to a file, as JSON if its name ends in .json")
	c.Flags().Lookup("summary").NoOptDefVal = "-"
	annotate(c, writesFile, "summary")
}

func (f *summaryFlag) given() bool { return f.to != "" }

// table returns the table that counts requests, or nil if the flag was not given.
func (f *summaryFlag) table() *summary.Table {
	if !f.given() {
		return nil
	}
	return f.counted
}

// open creates the file, so that a name that cannot be written is refused before the command
// begins its work.
func (f *summaryFlag) open() (err error) {
	if f.to == "" || f.to == "-" {
		return nil
	}
	if f.file, err = outfile.Create(f.to, outfile.Options{Context: ending, RiskPowerLoss: true}); err != nil {
		return fmt.Errorf("%s: --summary: %w", f.command, err)
	}
	return nil
}

// close removes a file that was not written.
func (f *summaryFlag) close() {
	if f.file != nil {
		f.file.Abandon()
	}
}

// write writes a report to the file or to standard error.
func (f *summaryFlag) write(standardError io.Writer, report summary.Report) error {
	if f.file == nil {
		_, err := report.WriteTo(standardError)
		return err
	}
	var text bytes.Buffer
	if strings.HasSuffix(f.to, ".json") {
		encodeJSON(&text, report)
	} else if _, err := report.WriteTo(&text); err != nil {
		return err
	}
	_, err := f.file.Write(text.Bytes())
	if err == nil {
		err = f.file.Commit()
	}
	if err != nil {
		return fmt.Errorf("%s: --summary: %w", f.command, f.file.Explain(err))
	}
	return nil
}
