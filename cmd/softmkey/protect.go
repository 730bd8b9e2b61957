package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
)

func newProtect() *cobra.Command {
	var p pass
	var format sigFlag
	var pad bool
	c := &cobra.Command{
		Use:     "protect --sig SIG [flags] IN OUT\n  softmkey protect --sig SIG --metadata FILE [flags] IN",
		GroupID: groupFiles,
		Short:   "Append a signature field to every block of plain data",
		Long: `Protect reads plain data from IN and writes it to OUT with a signature field after
every block: 512 bytes become 520 with --sig t10dif.

If IN does not end with a whole block, the rest goes to OUT without a field, and
protect prints a warning. With --pad, zeros complete the last block; strip gives them
back as data.

With --metadata there is no OUT: IN keeps the data, and FILE gets the fields, one after the
other in the order of the blocks. This is the form of nvme-cli ('nvme write --data IN
--metadata FILE'), of DIX, and of NVMe namespaces with separate metadata. IN must then have
whole blocks.

With a SIG such as none:512+8, the bytes beside each block are zeros, as in sectors of 520
bytes that nobody checks.`,
		Example: `  softmkey protect --sig t10dif disk.img disk.dif
  softmkey protect --sig t10dif:4096,app=0x5678,ref=100 disk.img disk.dif
  softmkey protect --sig nvme16:4096,ref=2048 --metadata lba2048.pi lba2048.img
  softmkey protect --sig none:512+16 --pad disk.img disk.528
  tar c photos | softmkey protect --sig crc32c:4096 --pad - photos.crc`,
		Args: func(c *cobra.Command, args []string) error {
			if p.outFields == "" {
				return operands("IN", "OUT")(c, args)
			}
			if len(args) == 2 {
				return usage(c, fmt.Errorf("%q is one operand too many: with --metadata the data stays in IN, and only %s is written", args[1], p.outFields))
			}
			return operands("IN")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(format.need(c, "sig"), checkSectors(c, "metadata", p.outFields, &format), p.checkNames(c, args...)); err != nil {
				return err
			}
			if pad {
				p.pad = format.format.Block()
			}
			p.onlyFields = p.outFields != ""
			p.outSectors = format.sectors
			return p.run(c, jobBetween(sigFlag{}, format), args[0], args[len(args)-1])
		},
	}
	format.bindUnchecked(c, "sig", "signature to add")
	c.Flags().BoolVar(&pad, "pad", false, "complete the last block with zeros")
	p.bindSeparate(c, &p.outFields, "metadata", "write the fields to this file, and no OUT")
	annotate(c, writesFile, "metadata")
	exclusive(c, "pad", "metadata")
	p.bind(c)
	return c
}
