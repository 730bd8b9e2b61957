package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/tool/outfile"
	"github.com/softmkey/softmkey/internal/tool/sectors"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/spf13/cobra"
)

// separateFlags are the flags for fields that are in files of their own.
type separateFlags struct {
	inFields, outFields fileFlag // files with the fields of IN and OUT; empty: the fields follow their blocks
	onlyFields          bool     // the data stays in IN: there is no OUT

	names  []string // of the flags
	fields *os.File // the open file of inFields, or nil
}

// bindSeparate adds one of the flags to a command.
func (f *separateFlags) bindSeparate(c *cobra.Command, file *fileFlag, name, usage string) {
	c.Flags().Var(file, name, usage)
	f.names = append(f.names, name)
}

// checkSectors refuses a file of fields for a format whose bytes beside the blocks are in the sectors.
func checkSectors(c *cobra.Command, flag string, file fileFlag, s *sigFlag) error {
	if file != "" && s.sectors != nil {
		return usage(c, fmt.Errorf("--%s %s: the bytes beside the blocks of %v are in its sectors, and are no fields", flag, file, s.sectors))
	}
	return nil
}

// checkNames refuses standard streams, and two operands or flags that are the same file.
func (f *separateFlags) checkNames(c *cobra.Command, operands ...string) error {
	for _, flag := range f.names {
		if !c.Flags().Changed(flag) {
			continue
		}
		name := c.Flags().Lookup(flag).Value.String()
		if name == "-" {
			return usage(c, fmt.Errorf("--%s -: must be the name of a file", flag))
		}
		for _, other := range operands {
			if other != "-" && outfile.Collides(name, other) {
				return usage(c, fmt.Errorf("--%s %s and %s are the same file", flag, name, other))
			}
		}
		operands = append(operands[:len(operands):len(operands)], name)
	}
	return nil
}

// open opens IN and the file with its fields.
func (f *separateFlags) open(name string) (*os.File, error) {
	in, err := openInput(name)
	if err == nil && f.inFields != "" {
		if f.fields, err = openInput(string(f.inFields)); err != nil {
			in.Close()
			return nil, err
		}
	}
	return in, err
}

func (f *separateFlags) close(in *os.File) {
	in.Close()
	if f.fields != nil {
		f.fields.Close()
	}
}

// separateInput returns the input whose blocks are in one file and whose fields are in another.
func separateInput(format sig.Format, data, fields *os.File) (mkeyio.Input, error) {
	var ends [2]mkeyio.Input
	for i, f := range []*os.File{data, fields} {
		if _, ok := seekable(f); !ok {
			return mkeyio.Input{}, fmt.Errorf("%s: data and fields in two files must be files or block devices", openName(f))
		}
		var err error
		if ends[i], err = mkeyio.FromFile(f); err != nil {
			return mkeyio.Input{}, err
		}
		if _, known := ends[i].Size(); !known { // an empty file
			ends[i] = mkeyio.FromAt(f, 0)
		}
	}
	return joined(format, data, ends[0], fields, ends[1])
}

// joined is mkeyio.FromSeparate with an error that names the files.
func joined(format sig.Format, data *os.File, blocks mkeyio.Input, fields *os.File, tuples mkeyio.Input) (mkeyio.Input, error) {
	in, err := mkeyio.FromSeparate(format, blocks, tuples)
	if err != nil {
		err = fmt.Errorf("%s and %s: %w", openName(data), openName(fields), reason(err))
	}
	return in, err
}

// sectorsInput returns the data in the sectors of a file.
func sectorsInput(f sectors.Format, in *os.File) (mkeyio.Input, error) {
	size, ok := seekable(in)
	if !ok {
		return mkeyio.From(f.Reader(in)), nil
	}
	at, err := in.Seek(0, io.SeekCurrent) // of standard input
	if err != nil {
		return mkeyio.Input{}, err
	}
	n, err := f.DataLen(max(size-at, 0))
	if err != nil {
		return mkeyio.Input{}, fmt.Errorf("%s: %w", openName(in), reason(err))
	}
	return mkeyio.FromAt(f.ReaderAt(offsetReader{in, at}), n), nil
}

// openName returns the name of an open input in messages.
func openName(f *os.File) string {
	if f == os.Stdin {
		return inputName("-")
	}
	return inputName(f.Name())
}

// outputs are the files that a command writes: OUT, the fields in a file of their own, or both.
type outputs struct {
	out    *outfile.File // nil: only fields are written
	fields *outfile.File // nil: the fields follow their blocks in OUT

	sectors *sectors.Format // of OUT, or nil
	writer  *sectors.Writer // writes them
	input   string          // the name of IN in messages
}

// outputs opens the outputs.
func (p *pass) outputs(name string, in *os.File) (*outputs, error) {
	o := &outputs{sectors: p.outSectors, input: openName(in)}
	var err error
	if !p.onlyFields {
		if o.out, err = p.create(name, in, p.secret); err != nil {
			return nil, err
		}
	}
	if p.outFields == "" {
		return o, nil
	}
	o.fields, err = p.create(string(p.outFields), in, p.secret)
	if err == nil {
		err = o.checkFields(string(p.outFields))
	}
	if err != nil {
		o.abandon()
		return nil, err
	}
	return o, nil
}

// checkFields refuses ends of another kind than that of separate fields.
func (o *outputs) checkFields(name string) error {
	if info, err := o.fields.Stat(); err != nil || !info.Mode().IsRegular() || o.fields.IsStdout() {
		return cmp.Or(err, fmt.Errorf("%s: fields apart from their blocks are written to a regular file", inputName(name)))
	}
	if o.out == nil {
		return nil
	}
	if _, ok := seekable(o.out.File); !ok || o.out.IsStdout() {
		return fmt.Errorf("OUT is a stream: blocks apart from their fields are written to a file or a block device")
	}
	return nil
}

// destination returns the output of a job.
func (o *outputs) destination(job *mkeyio.StreamJob) (mkeyio.Output, error) {
	switch {
	case o.sectors != nil:
		o.writer = o.sectors.NewWriter(o.out.File)
		return mkeyio.To(o.writer), nil
	case o.fields == nil:
		return jobOutput(o.out)
	}
	_, format := jobFormats(job)
	fields, err := mkeyio.ToFile(o.fields.File)
	if err != nil {
		return mkeyio.Output{}, err
	}
	if o.out == nil {
		return mkeyio.ToFields(*format, fields)
	}
	info, err := o.out.Stat()
	if err != nil {
		return mkeyio.Output{}, err
	}
	data := mkeyio.ToAt(o.out.File) // a block device
	if info.Mode().IsRegular() {
		if data, err = mkeyio.ToFile(o.out.File); err != nil {
			return mkeyio.Output{}, err
		}
	}
	return mkeyio.ToSeparate(*format, data, fields)
}

// check returns the lengths of the files of all, -1 if they are not known. It is an error if OUT is a block device that
// is smaller, or has sectors that would not be whole.
func (o *outputs) check(job *mkeyio.StreamJob, src mkeyio.Input) (lengths []int64, err error) {
	in, known := src.Size()
	if !known {
		return []int64{-1, -1}, nil
	}
	data, length := jobLength(job, in)
	if o.fields != nil {
		lengths, length = append(lengths, length-data), data
	}
	if o.sectors != nil {
		if length, err = o.sectors.Len(data); err != nil {
			return nil, fmt.Errorf("%s: %w", o.input, reason(err))
		}
	}
	if o.out != nil {
		err = checkRoom(o.out, length)
	}
	return append(lengths, length), err
}

// announce prints, for --dry-run, the name and the length of each file that the command would write, and whether the
// file would replace another one. in is the name of IN, and lengths are those of check.
func (o *outputs) announce(c *cobra.Command, asJSON bool, in string, lengths []int64) {
	for i, f := range o.all() {
		name, replaces := f.Target()
		if asJSON {
			encodeOutcome(c.OutOrStdout(), map[string]any{"command": c.Name(), "dry_run": true, "file": in, "out": name, "bytes_out": lengths[i], "replaces": replaces}, false)
			continue
		}
		size, what := "", "new"
		if lengths[i] >= 0 {
			size = fmt.Sprintf(", %d bytes", lengths[i])
		}
		if replaces {
			what = "in place of what is there"
		}
		fmt.Fprintf(c.OutOrStdout(), "%s would be written%s, %s\n", lineout.Printable(name), size, what)
	}
}

// stdout reports whether the data goes to standard output.
func (o *outputs) stdout() bool { return o != nil && o.out != nil && o.out.IsStdout() }

// appear reports whether an output is whole or absent: others keep what was written to them before an error.
func (o *outputs) appear() bool {
	if o.out == nil {
		return true
	}
	info, err := o.out.Stat()
	return err == nil && info.Mode().IsRegular() && !o.out.IsStdout()
}

// all returns the files in the order in which they get their names: OUT, if there is one, is the last.
func (o *outputs) all() (files []*outfile.File) {
	for _, f := range []*outfile.File{o.fields, o.out} {
		if f != nil {
			files = append(files, f)
		}
	}
	return files
}

func (o *outputs) abandon() {
	for _, f := range o.all() {
		f.Abandon()
	}
}

// explain returns an error with the names that the user gave.
func (o *outputs) explain(err error) error {
	for _, f := range o.all() {
		err = f.Explain(err)
	}
	return err
}

// commit gives the files their names. After an error, those that have not got theirs yet disappear.
func (o *outputs) commit() error {
	if o.writer != nil {
		if err := o.writer.Close(); err != nil {
			o.abandon()
			if refused := new(operr.Error); errors.As(err, &refused) {
				err = fmt.Errorf("%s: %w", o.input, reason(err))
			}
			return err
		}
	}
	for _, f := range o.all() {
		if err := f.Prepare(); err != nil {
			o.abandon()
			return err
		}
	}
	for _, f := range o.all() {
		if err := f.Commit(); err != nil {
			o.abandon()
			return err
		}
	}
	return nil
}
