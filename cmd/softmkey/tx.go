package main

import (
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

func newTX() *cobra.Command {
	var f transferFlags
	c := &cobra.Command{
		Use:        "tx [flags] IN OUT",
		GroupID:    groupKeys,
		SuggestFor: []string{"encrypt", "decrypt"},
		Short:      "Read the memory domain of a key and write its wire domain",
		Long: `Tx runs a file through a memory key in the direction of sending: IN is the memory
domain, OUT is the wire domain.` + transferLong,
		Example: `  softmkey tx --wire t10dif disk.img disk.dif
  softmkey tx --mem crc32c:4096 --wire t10dif:4096,ref=7 a.crc a.dif
  softmkey tx --wire t10dif --crypto encrypt --order before --unit 520 --dek disk.key disk.img disk.enc
  softmkey tx --crypto encrypt --unit 4096 --tweak 0x1000 --dek wrapped.key --kek master.key plain cipher
  softmkey tx --crypto decrypt --dek volume.key --offset 16M --unit 4096 --tweak-step 8 luks.img plain.img`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, mkeyio.TX, args) },
	}
	f.bind(c)
	return c
}
