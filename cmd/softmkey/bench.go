package main

import (
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/bench"
)

func newBench() *cobra.Command {
	var filter string
	var asJSON bool
	turns := 250 * time.Millisecond
	c := &cobra.Command{
		Use:     "bench [flags]",
		GroupID: groupOther,
		Short:   "Measure how fast this machine signs, checks and encrypts",
		Long: `Bench measures signatures, AES-XTS and memory keys on one core, with 64 KiB of cached data
per call. Beside each operation it measures the operation's limit, if it has one: a copy of
that data, or its two steps. Operation and limit run alternately. Bench prints the median
and the first and third quartile. A GB is 10^9 bytes of data without fields.

Rows A to J of a memory key are those of mlx5dv_wr_set_mkey_crypto(3), with T10-DIF on
512 bytes and AES-XTS with a key of 256 bits.`,
		Example: `  softmkey bench
  softmkey bench --filter 't10-dif.*/512'
  softmkey bench --filter '^mkey/row [ch]' --time 2s
  softmkey bench --json | jq '.results[] | [.operation, .size, .ours.median]'`,
		Args: operands(),
		RunE: func(c *cobra.Command, _ []string) error {
			match, err := regexp.Compile("(?i)" + filter)
			if err != nil {
				return usage(c, fmt.Errorf("--filter %s: %w", filter, err))
			}
			if turns <= 0 {
				return usage(c, fmt.Errorf("--time %v: must be more than 0", turns))
			}
			o := bench.Options{Rounds: 25, Turn: turns / 25, Filter: match}
			report := bench.Report{
				Machine: bench.ThisMachine(), Command: "bench", Date: time.Now().UTC().Format(time.DateOnly),
			}
			if !asJSON {
				fmt.Fprintf(c.OutOrStdout(), "%v\n\n", report.Machine)
				table := bench.Table{W: c.OutOrStdout()}
				o.Each = table.Print
			}
			if report.Results, err = bench.Run(c.Context(), bench.Rows(), o); err != nil {
				return err
			}
			if len(report.Results) == 0 {
				return usage(c, fmt.Errorf("--filter %s: nothing matches", filter))
			}
			if asJSON {
				encodeOutcome(c.OutOrStdout(), &report, true)
			}
			return nil
		},
	}
	c.Flags().StringVar(&filter, "filter", "", "only rows whose package/operation/variant/size matches this regular expression, `REGEXP`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().DurationVar(&turns, "time", turns, "`TIME` for each operation and each limit")
	return c
}
