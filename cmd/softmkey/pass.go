package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/operr"
)

// pass is what the commands have in common that bring a file through a key.
type pass struct {
	json      bool
	quiet     bool
	keepGoing bool
}

func (p *pass) bind(c *cobra.Command) {
	c.Flags().BoolVar(&p.json, "json", false, "tell of bad blocks (on standard error) and of the outcome (on standard output, or on standard error if OUT is '-') as JSON, one object a line")
	c.Flags().BoolVarP(&p.quiet, "quiet", "q", false, "show no progress")
}

func (p *pass) bindKeepGoing(c *cobra.Command) {
	c.Flags().BoolVar(&p.keepGoing, "keep-going", false, "go on behind a bad block, tell of every one, and write OUT nevertheless")
}

// run does a job between the files IN and OUT.
func (p *pass) run(c *cobra.Command, job mkeyio.Job, inName, outName string) error {
	in, err := openInput(inName)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := createOutput(outName, in)
	if err != nil {
		return err
	}
	dst, err := mkeyio.ToFile(out.File)
	if outName == "-" {
		// Standard output may be a file that something else writes to as well.
		dst, err = mkeyio.To(os.Stdout), nil
	}
	if err != nil {
		out.abandon()
		return err
	}
	_, err = p.transfer(c, job, dst, in, inName, outName)
	var bad *mkey.BadBlock
	if err != nil && !(errors.As(err, &bad) && p.keepGoing) {
		out.abandon()
		return err
	}
	return cmp.Or(out.commit(), err)
}

// transfer does a job from in to dst, shows the progress and tells of the outcome.
func (p *pass) transfer(c *cobra.Command, job mkeyio.Job, dst mkeyio.Output, in *os.File, inName, outName string) (mkeyio.Report, error) {
	src, err := mkeyio.FromFile(in)
	if err != nil {
		return mkeyio.Report{}, err
	}
	r := &reporter{command: c.Name(), input: inputName(inName), json: p.json, final: os.Stdout}
	if outName == "-" {
		r.final = os.Stderr
	}
	if !p.quiet && !p.json {
		total, known := src.Size()
		if !known {
			total = -1
		}
		r.bar = newProgress(r.input, total)
	}
	job.KeepGoing, job.Bad, job.Progress = p.keepGoing, r.bad, r.bar.set
	report, err := mkeyio.Run(c.Context(), job, dst, src)
	r.bar.hide()
	var bad *mkey.BadBlock
	if err != nil && !errors.As(err, &bad) {
		var refused *operr.Error
		if errors.As(err, &refused) {
			err = fmt.Errorf("%s: %w", r.input, reason(err))
		}
		return report, err
	}
	r.done(report)
	return report, err
}
