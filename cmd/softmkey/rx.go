package main

import (
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/spf13/cobra"
)

func newRX() *cobra.Command {
	var f transferFlags
	c := &cobra.Command{
		Use:     "rx [flags] IN OUT",
		GroupID: groupKeys,
		Short:   "Read the wire domain of a key and write its memory domain",
		Long: `Rx runs a file through a memory key in the direction of receiving: IN is the wire
domain, OUT is the memory domain. With the same flags it is the reverse of tx.` + transferLong,
		Example: `  softmkey rx --wire t10dif disk.dif disk.img
  softmkey rx --wire t10dif --crypto encrypt --order before --unit 520 --dek disk.key disk.enc disk.img
  softmkey rx --wire t10dif --check-mask 0xC0 --keep-going damaged.dif rescued.img`,
		Args: operands("IN", "OUT"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, mkeyio.RX, args) },
	}
	f.bind(c)
	return c
}
