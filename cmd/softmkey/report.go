package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

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
	begin   uint64    // offset of the first block in the input
	errors  io.Writer // for bad blocks
	final   io.Writer // for the JSON of the outcome
	bar     *progress

	most   int // bad blocks that are printed; 0: all
	found  int // bad blocks so far
	ranges ranges
}

// ranges are the numbers of bad blocks.
type ranges struct {
	list    [][2]uint64 // first and last block of each range
	leftOff int         // ranges that are not in the list
	last    uint64      // the last block that was added
}

// mostRanges bounds the memory for the numbers of bad blocks.
const mostRanges = 1000

// add adds a block after those before.
func (r *ranges) add(block uint64) {
	n := len(r.list)
	switch next := n > 0 && block == r.last+1; {
	case next && r.leftOff == 0:
		r.list[n-1][1] = block
	case next:
	case n < mostRanges:
		r.list = append(r.list, [2]uint64{block, block})
	default:
		r.leftOff++
	}
	r.last = block
}

// String returns the first ranges in words.
func (r *ranges) String() string {
	const most = 10
	var words []string
	for _, x := range r.list[:min(most, len(r.list))] {
		word := fmt.Sprint(x[0])
		if x[1] > x[0] {
			word += fmt.Sprintf("-%d", x[1])
		}
		words = append(words, word)
	}
	if more := max(len(r.list)-most, 0) + r.leftOff; more > 0 {
		words = append(words, count(uint64(more), "more range"))
	}
	return strings.Join(words, ", ")
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
	Ranges   [][2]uint64   `json:"ranges"`  // numbers of the first and the last block of each range of bad blocks
	LeftOff  int           `json:"ranges_left_off"`
}

// newOutcome returns the outcome of a command for a file.
func newOutcome(command, file string, m mkeyio.JobReport, bad *ranges) outcome {
	o := outcome{
		Command: command, File: file, BytesIn: m.BytesIn, BytesOut: m.BytesOut,
		Blocks: m.Blocks, Escaped: m.Escaped, Errors: m.Errors, Tail: m.Tail,
		Seconds: m.Elapsed.Seconds(), First: filecopy.NewBad(m.First),
		Ranges: append([][2]uint64{}, bad.list...), LeftOff: bad.leftOff,
	}
	if o.Seconds > 0 {
		o.Rate = float64(o.BytesIn) / 1e9 / o.Seconds
	}
	return o
}

// bad reports a bad block on standard error.
func (r *reporter) bad(b *mkey.BadBlock) {
	r.ranges.add(b.Sig.Block)
	if r.found++; r.most > 0 && r.found > r.most {
		return
	}
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
	if b == nil {
		return nil
	}
	moved := *b
	if r.block != 0 {
		moved.Sig.Offset = b.Sig.Block * r.block
	}
	moved.Sig.Offset += r.begin
	return &moved
}

// done reports the outcome of a job, which is complete if it has processed its whole input.
func (r *reporter) done(m mkeyio.JobReport, job *mkeyio.StreamJob, complete bool) {
	if r.json {
		m.First = r.at(m.First)
		encodeOutcome(r.final, newOutcome(r.command, r.file, m, &r.ranges), complete)
		return
	}
	if !r.silent && complete {
		r.warn(m, job)
	}
}

// stopped says where a job has ended before the end of its input, and after a bad block how to go on. total is the
// length of the input, or -1; without out nothing is written.
func (r *reporter) stopped(m mkeyio.JobReport, job mkeyio.StreamJob, total int64, bad bool, out *outputs) {
	in, _ := jobFormats(&job)
	of := ""
	if in != nil && total >= 0 {
		of = fmt.Sprintf(" of %d", total/int64(in.Stride()))
	}
	why, next := "an error", ""
	if bad {
		why = "a bad block"
	}
	switch {
	case out == nil && bad:
		why = "the first bad block (--fail-fast)"
	case out == nil || in == nil:
	case out.appear():
		next = ": nothing was written"
	default:
		next = ": the output is not complete"
	}
	if bad && out != nil {
		next += "; --keep-going writes all of it, and 'softmkey verify' finds every bad block"
	}
	message(r.errors, "%s: stopped at %s, after %d%s blocks%s", r.input, why, m.Blocks, of, next)
}

// details returns in words which blocks are bad, and what of the input was not checked.
func (r *reporter) details(m mkeyio.JobReport) string {
	text := ""
	if m.Errors > 0 {
		text = fmt.Sprintf(": %s %v", map[bool]string{true: "block", false: "blocks"}[m.Errors == 1], &r.ranges)
	}
	if m.Escaped > 0 {
		text += fmt.Sprintf(", %d not checked because their tags exempt them", m.Escaped)
	}
	if m.Tail > 0 {
		text += fmt.Sprintf(", the last %d bytes not checked because they are no whole block", m.Tail)
	}
	return text
}

// complete reports whether a command whose error is err has processed its whole input.
func complete(err error) bool {
	var bad *sig.Error
	return err == nil || errors.As(err, &bad)
}

// warn warns of data that is not protected although a command succeeds.
func (r *reporter) warn(m mkeyio.JobReport, job *mkeyio.StreamJob) {
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
func encodeJSON(w io.Writer, v any) { fmt.Fprintf(w, "%s\n", jsonText(v)) }

// jsonText returns v as JSON. Characters that are not printable, some of which control terminals, are escaped.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	must(err)
	var text strings.Builder
	for _, r := range string(b) {
		if unicode.IsPrint(r) || r > 0xffff {
			text.WriteRune(r)
		} else {
			fmt.Fprintf(&text, "\\u%04x", r)
		}
	}
	return text.String()
}

// encodeOutcome prints an outcome, which is a struct, as a line of JSON with the member "complete": whether the command
// has done all its work.
func encodeOutcome(w io.Writer, v any, complete bool) {
	text := jsonText(v)
	fmt.Fprintf(w, "%s,\"complete\":%t}\n", text[:len(text)-1], complete)
}

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
	encodeOutcome(to, failure{Command: strings.TrimPrefix(c.CommandPath(), "softmkey "), Error: err.Error(), Status: code}, false)
}
