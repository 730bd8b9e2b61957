package main

import (
	"cmp"

	"github.com/spf13/cobra"
)

func newStrip() *cobra.Command {
	var p pass
	var format sigFlag
	c := &cobra.Command{
		Use:     "strip --sig SIG [flags] IN OUT",
		GroupID: groupFiles,
		Short:   "Check the field of every block and remove it",
		Long: `Strip reads a protected stream from IN, checks the field of every block and writes
the data without fields to OUT. It is the reverse of protect. With --metadata, where IN
has the blocks alone and FILE has their fields, strip checks them and copies IN to OUT.
With a SIG such as none:512+8 it leaves out the bytes beside each block, and checks
nothing.

At the first bad block strip stops with exit status 1 and makes no OUT. With
--keep-going it reports every bad block and writes all data; the exit status is
still 1. Long runs of zeros become holes in OUT.`,
		Example: `  softmkey strip --sig t10dif disk.dif disk.img
  softmkey strip --sig t10dif --keep-going damaged.dif rescued.img
  softmkey strip --sig none:512+8,meta-first drive.520 disk.img
  softmkey strip --sig crc32c:4096 photos.crc - | tar x`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(format.need(c, "sig"), checkSectors(c, "metadata", p.inFields, &format), p.checkNames(c, args...)); err != nil {
				return err
			}
			p.inSectors = format.sectors
			return p.run(c, jobBetween(format, sigFlag{}), args[0], args[1])
		},
	}
	format.bindUnchecked(c, "sig", "signature that IN has")
	p.bindSeparate(c, &p.inFields, "metadata", "IN has the blocks alone, and their fields are in this file")
	p.bindKeepGoing(c)
	p.bind(c)
	return c
}
