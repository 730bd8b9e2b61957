package main

import (
	"context"
	"fmt"

	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

func newVerify() *cobra.Command {
	var v verifyFlags
	c := &cobra.Command{
		Use:     "verify --sig SIG [flags] IN...",
		GroupID: groupFiles,
		Short:   "Check the field of every block",
		Long: `Verify reads a protected stream from IN to its end and checks the field of every block.
It prints one line on standard error for a bad block: the bad part of the field, the
number of the block, the offset of its first byte in IN, the value stored in the field,
and the value computed from the data or given by SIG. The outcome, a line on standard
output, has the number of blocks that were checked, and the number of bad ones with their
ranges. There are lines for the first 10 bad blocks of a file, or for as many as
--max-errors says. With --fail-fast, verify stops at the first bad block of a file, and
says so; it checks the other files in any case.

With --metadata, IN has the blocks alone and FILE has their fields, in the order of the
blocks, as 'nvme read --data IN --metadata FILE' writes them. FILE must have exactly one
for each block.

With --offset, the stream begins at that byte of IN, where a partition begins: block 0, and
the reference tag of SIG, are there. Offsets of bad blocks count from the beginning of IN.

A block whose tags exempt it from the check (app-escape, app-ref-escape) is counted, but
not checked: its data may be anything. The outcome has the number of such blocks, and the
bytes after the last whole block, which have no field.

The exit status is 1 if a block is bad. With --min-blocks it is also 1 if fewer blocks of
a file were checked, for example of an empty one.`,
		Example: `  softmkey verify --sig t10dif disk.dif
  softmkey verify --sig t10dif,ref=2048 --max-errors 0 disk.dif
  softmkey verify --sig nvme16:4096,ref=2048 --metadata lba2048.pi lba2048.img
  softmkey verify --sig crc64:4096 --json backup.crc | jq .errors
  find . -name '*.crc' -print0 | xargs -0 softmkey verify --sig crc64:4096 --min-blocks 1`,
		Args: func(c *cobra.Command, args []string) error {
			return operands("IN")(c, args[:min(len(args), 1)])
		},
		RunE: v.run,
	}
	v.format.unchecked = true // for an error that says why
	v.format.bind(c, "sig", "signature that IN has")
	c.Flags().IntVar(&v.most, "max-errors", 10, "print a line for at most `N` bad blocks of a file; 0 for all")
	c.Flags().BoolVar(&v.all, "all", false, "the same as --max-errors 0")
	c.Flags().BoolVar(&v.keepGoing, "keep-going", false, "the same as --max-errors 0")
	c.Flags().BoolVar(&v.failFast, "fail-fast", false, "stop at the first bad block of a file")
	for _, all := range []string{"all", "keep-going"} {
		exclusive(c, "fail-fast", all)
		exclusive(c, "max-errors", all)
	}
	c.Flags().Int64Var(&v.least, "min-blocks", 0, "end with exit status 1 if fewer than `N` blocks of a file were checked")
	v.bindSeparate(c, &v.inFields, "metadata", "IN has the blocks alone, and their fields are in this file")
	offsets.bind(c, &v.offset, "offset", "begin at this byte of IN, a file or a block device: block 0 is there")
	exclusive(c, "offset", "metadata")
	v.bindReport(c)
	return c
}

// verifyFlags are the flags of verify.
type verifyFlags struct {
	pass
	format   sigFlag
	all      bool
	failFast bool
	offset   parsed[int64]
	least    int64
}

func (v *verifyFlags) run(c *cobra.Command, args []string) error {
	if err := v.format.need(c, "sig"); err != nil {
		return err
	}
	if s := v.format.sectors; s != nil {
		return usage(c, fmt.Errorf("--sig %v: nothing can be checked: nobody knows what the %d bytes beside each block must be", s, s.Extra))
	}
	if v.least < 0 {
		return usage(c, fmt.Errorf("--min-blocks %d: must not be negative", v.least))
	}
	if len(args) > 1 {
		if err := strayFormat(c, args); err != nil {
			return usage(c, err)
		}
		if v.inFields != "" {
			return usage(c, fmt.Errorf("--metadata %s has the fields of one file: %d files are given", v.inFields, len(args)))
		}
	}
	if err := v.checkNames(c, args...); err != nil {
		return err
	}
	if v.most < 0 {
		return usage(c, fmt.Errorf("--max-errors %d: must not be negative", v.most))
	}
	if v.keepGoing || v.all {
		v.most = 0
	}
	v.keepGoing = !v.failFast
	v.parts, v.pass.offset, v.pass.length = v.offset.given, v.offset.or(0), -1
	if len(args) == 1 {
		return v.one(c, args[0])
	}
	worst := exitOK
	for _, name := range args {
		err := v.one(c, name)
		if ctx := c.Context(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		code := status(err)
		if code > exitBad && v.json {
			encodeOutcome(c.OutOrStdout(), failure{Command: c.Name(), File: name, Error: err.Error(), Status: code}, false)
		}
		worst = max(worst, code)
	}
	if worst != exitOK {
		return reported(worst)
	}
	return nil
}

// one verifies a file.
func (v *verifyFlags) one(c *cobra.Command, name string) error {
	in, err := v.open(name)
	if err != nil {
		return err
	}
	defer v.close(in)
	report, r, err := v.transfer(c, mkeyio.Strip(v.format.format), mkeyio.CheckOnly(), in, name, nil)
	if err != nil && !complete(err) {
		return err
	}
	checked := report.Blocks - report.Escaped
	if !v.json && !v.quiet {
		fmt.Fprintf(c.OutOrStdout(), "%s: %d blocks, %d bad%s\n", inputName(name), report.Blocks, report.Errors, r.details(report))
	}
	if err == nil && checked < v.least {
		short := fmt.Sprintf("%s: %d blocks were checked: --min-blocks %d", inputName(name), checked, v.least)
		message(c.ErrOrStderr(), "%s", short)
		if v.json {
			encodeOutcome(c.OutOrStdout(), failure{Command: c.Name(), File: name, Error: short, Status: exitBad}, true)
		}
		return reported(exitBad)
	}
	return err
}
