package main

import (
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

func newProtect() *cobra.Command {
	var p pass
	var format sigFlag
	var pad bool
	c := &cobra.Command{
		Use:     "protect --sig SIG [flags] IN OUT",
		GroupID: groupFiles,
		Short:   "Append a signature field to every block of plain data",
		Long: `Protect reads plain data from IN and writes it to OUT with a signature field after
every block: 512 bytes become 520 with --sig t10dif.

If IN does not end with a whole block, the rest goes to OUT without a field, and
protect prints a warning. With --pad, zeros complete the last block; strip gives them
back as data.`,
		Example: `  softmkey protect --sig t10dif disk.img disk.dif
  softmkey protect --sig t10dif:4096,app=0x5678,ref=100 disk.img disk.dif
  tar c photos | softmkey protect --sig crc32c:4096 - photos.crc`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := format.need(c, "sig"); err != nil {
				return err
			}
			if pad {
				p.pad = format.format.Block()
			}
			return p.run(c, mkeyio.Protect(format.format), args[0], args[1])
		},
	}
	format.bind(c, "sig", "signature to add")
	c.Flags().BoolVar(&pad, "pad", false, "complete the last block with zeros")
	p.bind(c)
	return c
}
