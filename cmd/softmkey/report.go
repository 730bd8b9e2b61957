package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/softmkey/softmkey/internal/tool/filecopy"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// reporter reports bad blocks and the outcome, in words or as JSON.
type reporter struct {
	command string
	file    string // the name of the input, as it was given
	input   string // its name in messages
	json    bool
	silent  bool      // print no warnings
	block   uint64    // bytes from one block of the input to the next, if its fields are in another file; 0: the fields are between them
	errors  io.Writer // for bad blocks
	final   io.Writer // for the JSON of the outcome
	bar     *progress
}

// outcome is the final report as JSON.
type outcome struct {
	Command  string        `json:"command"`
	BytesIn  int64         `json:"bytes_in"`
	BytesOut int64         `json:"bytes_out"`
	Blocks   int64         `json:"blocks"`
	Errors   int64         `json:"errors"`
	Tail     int64         `json:"tail_bytes"`
	Seconds  float64       `json:"seconds"`
	Rate     float64       `json:"gb_per_second"` // 10^9 bytes of input per second
	First    *filecopy.Bad `json:"first_error"`
	File     string        `json:"file"`    // the name of the input
	Escaped  int64         `json:"escaped"` // blocks that were not checked, because their tags exempt them
}

// bad reports a bad block on standard error.
func (r *reporter) bad(b *mkey.BadBlock) {
	defer r.bar.hide()()
	b = r.at(b)
	if r.json {
		encodeJSON(r.errors, struct {
			*filecopy.Bad
			File string `json:"file"`
		}{filecopy.NewBad(b), r.file})
		return
	}
	message(r.errors, "%s: %v", r.input, &b.Sig)
}

// at returns a bad block, or nil, with its offset in the file that has the data.
func (r *reporter) at(b *mkey.BadBlock) *mkey.BadBlock {
	if b == nil || r.block == 0 {
		return b
	}
	moved := *b
	moved.Sig.Offset = b.Sig.Block * r.block
	return &moved
}

// done reports the outcome of a job.
func (r *reporter) done(m mkeyio.Report, job *mkeyio.Job) {
	if r.json {
		o := outcome{
			Command: r.command, File: r.file,
			BytesIn: m.BytesIn, BytesOut: m.BytesOut,
			Blocks: m.Blocks, Escaped: m.Escaped, Errors: m.Errors, Tail: m.Tail,
			Seconds: m.Elapsed.Seconds(), First: filecopy.NewBad(r.at(m.First)),
		}
		if o.Seconds > 0 {
			o.Rate = float64(m.BytesIn) / 1e9 / o.Seconds
		}
		encodeJSON(r.final, o)
		return
	}
	if !r.silent {
		r.warn(m, job)
	}
}

// warn warns of data that is not protected although a command succeeds.
func (r *reporter) warn(m mkeyio.Report, job *mkeyio.Job) {
	if job.Signature == nil {
		return
	}
	in, out := jobFormats(job)
	checked := in != nil
	whole := in
	if !checked {
		whole = out
	}
	data := m.BytesIn
	if checked {
		data = in.DataLen(data)
	}
	if tail := data % int64(whole.Block()); tail > 0 {
		warnTail(r.errors, r.input, tail)
	} else if out != nil && data%int64(out.Block()) > 0 {
		message(r.errors, "warning: %s: the last %d bytes of data are no whole block of %d bytes: they have no field in the output", r.input, data%int64(out.Block()), out.Block())
	}
	switch {
	case m.Blocks == 0 && checked && data >= int64(whole.Block()):
		message(r.errors, "warning: %s: nothing was checked: the masks leave nothing of the fields of %v", r.input, in)
	case m.Blocks == 0 && m.Errors == 0 && checked:
		message(r.errors, "warning: %s: there is no whole block: nothing was checked", r.input)
	case m.Blocks == 0 && m.Errors == 0:
		message(r.errors, "warning: %s: there is no whole block: nothing was signed", r.input)
	case checked && m.Escaped == m.Blocks:
		message(r.errors, "warning: %s: nothing was checked: the tags of all %d blocks exempt them", r.input, m.Blocks)
	}
}

// warnExempt warns of an output whose tags exempt every block from the check.
func (r *reporter) warnExempt(f *sig.Format) {
	if f == nil || r.silent || r.json {
		return
	}
	for n := range uint64(2) {
		if !f.Escapes(sig.Field{AppTag: f.AppTag, RefTag: f.From(n).RefTag}) {
			return
		}
	}
	message(r.errors, "warning: %v: these tags exempt a block from the check: nobody will check what is written", f)
}

// warnTail warns of data after the last whole block of a file, if it has some.
func warnTail(w io.Writer, name string, n int64) {
	if n > 0 {
		message(w, "warning: %s: the last %d bytes of data are no whole block: they have no field and no check", name, n)
	}
}

// namesStdout reports whether an operand or the value of a flag is the name of the file to which
// standard output goes.
func namesStdout(c *cobra.Command) bool {
	out, err := os.Stdout.Stat()
	if err != nil || !out.Mode().IsRegular() {
		return false
	}
	names := c.Flags().Args()
	c.Flags().Visit(func(f *pflag.Flag) { names = append(names, f.Value.String()) })
	return slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && os.SameFile(info, out)
	})
}

// encodeJSON prints v as a line of JSON. Its callers learn of an error from the writer, which keeps it.
func encodeJSON(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

// failure is the last line of the output of --json of a command that failed, or of a copy that a bad
// block has ended.
type failure struct {
	Command string `json:"command"`
	File    string `json:"file,omitempty"` // of a command that has several
	Error   string `json:"error"`
	Status  int    `json:"status"` // the exit status
}

// reportFailure prints a failure if the command was given --json. The line goes to standard output,
// as the outcome would, or to standard error if the data goes to standard output.
func reportFailure(c *cobra.Command, err error, code int) {
	if f := c.Flags().Lookup("json"); f == nil || f.Value.String() != "true" {
		return
	}
	to, args := c.OutOrStdout(), c.Flags().Args()
	if n := len(args); n > 0 && args[n-1] == "-" && c.Flags().Lookup("risk-power-loss") != nil { // the command has an OUT, which is "-"
		to = c.ErrOrStderr()
	}
	if namesStdout(c) {
		return // standard output is a file that the command reads, which the line would damage
	}
	encodeJSON(to, failure{Command: strings.TrimPrefix(c.CommandPath(), "softmkey "), Error: err.Error(), Status: code})
}
