package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/mkeyio"
)

func newConvert() *cobra.Command {
	var p pass
	var from, to sigFlag
	c := &cobra.Command{
		Use:     "convert --from SIG --to SIG [flags] IN OUT",
		GroupID: groupFiles,
		Short:   "Convert one kind of signature into another",
		Long: `Convert reads a protected stream from IN, checks the field of every block, and writes
the data to OUT with fields of another kind, on blocks of the same or another size.

If type and block size are the same, the parts of the field that both signatures have
in common are copied, so that a bad block stays bad. All other parts are generated.
A block that the rules of --from exempt from the check (app-escape, app-ref-escape)
stays exempt if the block size is the same and --to has such a rule; otherwise it gets a
whole field.

With --from-metadata, IN has the blocks alone and FILE has their fields, in the order of
the blocks; with --to-metadata, OUT and FILE are written in this form. With the same
signature in --from and --to, this cuts a stream into two files, or joins them. A new OUT
gets its name after FILE has got its own: where OUT is, both are complete. If both are
replaced and the system stops in between, FILE is the new one and OUT the old one: verify
finds the blocks that differ.

A SIG such as none:512+8 has bytes beside each block that nobody checks. From it, they are
left out; to it, they are zeros.

At the first bad block convert stops with exit status 1 and makes no OUT. With
--keep-going it reports every bad block and writes OUT nevertheless.`,
		Example: `  softmkey convert --from t10dif --to crc32c:4096 disk.dif disk.crc
  softmkey convert --from t10dif,ref=0 --to t10dif,ref=4096 disk.dif moved.dif
  softmkey convert --from none:512+8 --to t10dif drive.520 disk.dif
  softmkey convert --from t10dif --to t10dif --to-metadata disk.pi disk.dif disk.img`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cmp.Or(from.need(c, "from"), to.need(c, "to"),
				checkSectors(c, "from-metadata", p.inFields, &from), checkSectors(c, "to-metadata", p.outFields, &to), p.checkNames(c, args...)); err != nil {
				return err
			}
			p.inSectors, p.outSectors = from.sectors, to.sectors
			return p.run(c, jobBetween(from, to), args[0], args[1])
		},
	}
	from.bindUnchecked(c, "from", "signature that IN has")
	to.bindUnchecked(c, "to", "signature that OUT gets")
	p.bindSeparate(c, &p.inFields, "from-metadata", "IN has the blocks alone, and their fields are in this file")
	p.bindSeparate(c, &p.outFields, "to-metadata", "write the blocks alone to OUT, and their fields to this file")
	annotate(c, writesFile, "to-metadata")
	p.bindKeepGoing(c)
	p.bind(c)
	return c
}

// jobBetween returns the job between two formats, of which one or both may be plain data.
func jobBetween(from, to sigFlag) mkeyio.StreamJob {
	if from.domain() == nil && to.domain() == nil {
		return mkeyio.StreamJob{} // a copy
	}
	if from.domain() == nil {
		return mkeyio.Protect(to.format)
	}
	if to.domain() == nil {
		return mkeyio.Strip(from.format)
	}
	return mkeyio.Convert(from.format, to.format)
}
