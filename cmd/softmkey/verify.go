package main

import (
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

func newVerify() *cobra.Command {
	var p pass
	var format sigFlag
	c := &cobra.Command{
		Use:     "verify --sig SIG [--all] [flags] IN",
		GroupID: groupFiles,
		Short:   "Check the field of every block",
		Long: `Verify reads a protected stream from IN and checks the field of every block. It prints
one line on standard error for a bad block: the bad part of the field, the number of
the block, the offset of its first byte in IN, the value stored in the field, and the
value computed from the data or given by SIG.

The exit status is 1 if a block is bad. Verify stops at the first bad block, unless
--all is given.`,
		Example: `  softmkey verify --sig t10dif disk.dif
  softmkey verify --sig t10dif,ref=2048 --all disk.dif
  softmkey verify --sig crc64:4096 --json backup.crc | jq .errors`,
		Args: operands("IN"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := format.need(c, "sig"); err != nil {
				return err
			}
			in, err := openInput(args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			report, err := p.transfer(c, mkeyio.Strip(format.format), mkeyio.CheckOnly, in, args[0], false)
			var bad *mkey.BadBlock
			if p.json || p.quiet || err != nil && !(errors.As(err, &bad) && p.keepGoing) {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d blocks, %d bad\n", inputName(args[0]), report.Blocks, report.Errors)
			return err
		},
	}
	format.bind(c, "sig", "signature that IN has")
	c.Flags().BoolVar(&p.keepGoing, "all", false, "check to the end and report every bad block")
	p.bindReport(c)
	return c
}
