package mkeyio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// Protect a stream, spoil a byte of it, and look for the block.
func ExampleRun() {
	ctx := context.Background()
	format := sig.Format{Type: sig.T10DIF, AppTag: 0x5678}

	var protected bytes.Buffer
	data := bytes.NewReader(make([]byte, 10*512))
	report, err := mkeyio.Run(ctx, mkeyio.Protect(format), mkeyio.To(&protected), mkeyio.From(data))
	fmt.Println(report.BytesIn, report.BytesOut, report.Blocks, err)

	protected.Bytes()[3*520+100] ^= 0x80
	_, err = mkeyio.Run(ctx, mkeyio.Strip(format), mkeyio.CheckOnly, mkeyio.From(&protected))
	var bad *mkey.BadBlock
	if errors.As(err, &bad) {
		fmt.Println(bad)
	}
	// Output:
	// 5120 5200 10 <nil>
	// wire domain: bad guard: block 3 at offset 1560: stored 0x0, computed 0x322c
}

// Hear of every bad block and get the data nevertheless.
func ExampleJob() {
	format := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	stream := make([]byte, 5*4100) // zeros are no good signature of zeros

	var data bytes.Buffer
	job := mkeyio.Strip(format)
	job.KeepGoing = true
	job.Bad = func(b *mkey.BadBlock) { fmt.Println(b.Sig.Kind, b.Sig.Block) }
	report, err := mkeyio.Run(context.Background(), job, mkeyio.To(&data), mkeyio.FromAt(bytes.NewReader(stream), int64(len(stream))))
	fmt.Println(report.Errors, data.Len(), err != nil)
	// Output:
	// bad guard 0
	// bad guard 1
	// bad guard 2
	// bad guard 3
	// bad guard 4
	// 5 20480 true
}
