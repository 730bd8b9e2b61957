package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/sectors"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/operr"
)

// pass holds the flags that are common to the commands that run a file through a
// key.
type pass struct {
	outputFlags
	json      bool
	quiet     bool
	keepGoing bool
	most      int  // bad blocks that are printed; 0: all
	silent    bool // print no warnings
	secret    bool // the output is decrypted data, which only its owner may read
	dry       bool // say what would be written, and write nothing
	pad       int  // pad IN with zeros to blocks of this size; 0: do not

	offset, length int64 // if parts is set: the part of IN; a negative length means to its end
	parts          bool

	separateFlags
	inSectors, outSectors *sectors.Format // of IN and OUT; nil: no bytes beside the blocks that nobody checks

	encryption *mkeyio.Encryption // does the job, which has no signatures; nil: a key does it
	decrypt    bool
}

// bind adds the flags of a command that writes OUT.
func (p *pass) bind(c *cobra.Command) {
	p.bindReport(c)
	p.outputFlags.bind(c)
	c.Flags().BoolVar(&p.dry, "dry-run", false, "check names, rights, locks and the size of a block device, say what would be written, and write nothing; IN is not read")
}

// bindReport adds the flags for progress and report.
func (p *pass) bindReport(c *cobra.Command) {
	c.Flags().BoolVar(&p.json, "json", false, "report bad blocks (on standard error) and the outcome (on standard output, or on standard error if OUT is '-') as JSON, one object per line")
	c.Flags().BoolVarP(&p.quiet, "quiet", "q", false, "show no progress")
	c.Flags().BoolVar(&p.silent, "no-warnings", false, "print no warnings")
}

func (p *pass) bindKeepGoing(c *cobra.Command) {
	c.Flags().BoolVar(&p.keepGoing, "keep-going", false, "continue after a bad block, report every bad block, and write OUT nevertheless")
}

// run executes a job between the files IN and OUT.
func (p *pass) run(c *cobra.Command, job mkeyio.StreamJob, inName, outName string) error {
	in, err := p.open(inName)
	if err != nil {
		return err
	}
	defer p.close(in)
	out, err := p.outputs(outName, in)
	if err != nil {
		return err
	}
	src, err := p.source(in, &job)
	var lengths []int64
	if err == nil {
		lengths, err = out.check(&job, src)
	}
	if err == nil && p.dry {
		out.abandon()
		out.announce(c, p.json, inName, lengths)
		return nil
	}
	var dst mkeyio.Output
	if err == nil {
		dst, err = out.destination(&job)
	}
	if err == nil {
		_, _, err = p.transfer(c, job, dst, in, inName, out)
	}
	var bad *mkey.BadBlock
	if err != nil && !(errors.As(err, &bad) && p.keepGoing) {
		out.abandon()
		return out.explain(err)
	}
	return cmp.Or(out.commit(), err)
}

// source returns IN as the input of a job.
func (p *pass) source(in *os.File, job *mkeyio.StreamJob) (mkeyio.Input, error) {
	src, err := mkeyio.Input{}, error(nil)
	switch {
	case p.parts:
		src, err = part(in, p.offset, p.length)
	case p.inSectors != nil:
		src, err = sectorsInput(*p.inSectors, in)
	case p.fields != nil:
		format, _ := jobFormats(job)
		src, err = separateInput(*format, in, p.fields)
	default:
		src, err = mkeyio.FromFile(in)
	}
	if err == nil && p.pad != 0 {
		src = src.Padded(p.pad)
	}
	return src, err
}

// do runs a job, or the encryption that takes its place.
func (p *pass) do(ctx context.Context, job mkeyio.StreamJob, dst mkeyio.Output, src mkeyio.Input) (mkeyio.JobReport, error) {
	if p.encryption == nil {
		return mkeyio.Run(ctx, job, dst, src)
	}
	p.encryption.Progress = job.Progress
	if p.decrypt {
		return p.encryption.Decrypt(ctx, dst, src)
	}
	return p.encryption.Encrypt(ctx, dst, src)
}

// transfer executes a job from in to dst, which are the files of out, shows the progress and reports the outcome. The
// report goes to standard error if the data goes to standard output.
func (p *pass) transfer(c *cobra.Command, job mkeyio.StreamJob, dst mkeyio.Output, in *os.File, inName string, out *outputs) (mkeyio.JobReport, *reporter, error) {
	src, err := p.source(in, &job)
	if err != nil {
		return mkeyio.JobReport{}, nil, err
	}
	r := &reporter{command: c.Name(), file: inName, input: inputName(inName), json: p.json, silent: p.silent, most: p.most, errors: c.ErrOrStderr(), final: c.OutOrStdout()}
	given, made := fileFormats(&job)
	r.warnExempt(made)
	if out.stdout() {
		r.final = r.errors
	}
	r.begin = uint64(p.offset)
	if p.fields != nil {
		r.block = uint64(given.Block())
	}
	total, known := src.Size()
	if !known {
		total = -1
	}
	if !p.quiet && !p.json {
		r.bar = newProgress(r.input, total)
	}
	job.KeepGoing, job.Bad, job.Progress = p.keepGoing, r.bad, r.bar.set
	report, err := p.do(c.Context(), job, dst, src)
	r.bar.end()
	if f := p.inSectors; f != nil {
		report.BytesIn = report.BytesIn / int64(f.Block) * int64(f.Size())
	}
	if f := p.outSectors; f != nil {
		report.BytesOut = report.BytesOut / int64(f.Block) * int64(f.Size())
	}
	if p.onlyFields {
		report.BytesOut -= report.BytesIn // the data is not written
	}
	if left := r.found - r.most; r.most > 0 && left > 0 && !p.json {
		message(r.errors, "%s: %s not printed: --max-errors 0 prints all", r.input, count(uint64(left), "more bad block"))
	}
	if !p.json && p.fields == nil && p.offset == 0 {
		suggestFormat(r.errors, in, inName, given, err)
	}
	var bad *mkey.BadBlock
	stopped := err != nil && (!errors.As(err, &bad) || !p.keepGoing)
	if stopped && !p.json && report.Blocks > 0 {
		r.stopped(report, job, total, bad != nil, out)
	}
	if err != nil && bad == nil {
		var refused *operr.Error
		if errors.As(err, &refused) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%s: %w", r.input, reason(err))
		}
		return report, r, err
	}
	r.done(report, &job, !stopped)
	return report, r, err
}
