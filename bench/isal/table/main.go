// Command table prints the comparison of block signatures with ISA-L.
package main

import (
	"flag"
	"fmt"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/bench/measure"
)

func main() {
	data := flag.Int("data", 64<<10, "bytes of data in a run")
	repetitions := flag.Int("n", 21, "repetitions")
	flag.Parse()
	fmt.Printf("%-34s %6s %9s %9s %7s  %9s %9s  %s\n", "operation", "block", "ours GB/s", "peer GB/s", "ratio", "best", "best", "peer")
	for _, row := range isal.Rows(*data) {
		r := measure.Interleaved([]measure.Case{row.Ours, row.Peer}, measure.Options{Repetitions: *repetitions})
		fmt.Printf("%-34s %6d %9.1f %9.1f %7.2f  %9.1f %9.1f  %s\n", row.Operation, row.BlockSize,
			r[0].Median, r[1].Median, r[0].Median/r[1].Median, r[0].Best, r[1].Best, row.PeerName)
	}
}
