package mkeyio_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// TestPadded protects inputs of every length about whole blocks and chunks, read in order and
// at offsets. Each must be what the same bytes with zeros behind them give.
func TestPadded(t *testing.T) {
	const block = 512
	f := sig.Format{Type: sig.T10DIF, BlockSize: block}
	for _, n := range []int{0, 1, block - 1, block, block + 1, 512<<10 - 1, 512 << 10, 512<<10 + 1, 3<<20 + 77} {
		data := bytes.Repeat([]byte("padding."), n/8+1)[:n]
		whole := append(bytes.Clone(data), make([]byte, (block-n%block)%block)...)
		want := make([]byte, f.StreamLen(int64(len(whole))))
		must(f.Protect(want, whole))
		for name, in := range map[string]mkeyio.Input{
			"in order":   mkeyio.From(iotest.HalfReader(bytes.NewReader(data))),
			"at offsets": mkeyio.FromAt(strings.NewReader(string(data)), int64(n)),
		} {
			t.Run(fmt.Sprintf("%d %s", n, name), func(t *testing.T) {
				var out bytes.Buffer
				report, err := mkeyio.Run(context.Background(), mkeyio.Protect(f), mkeyio.To(&out), in.Padded(block))
				if err != nil || report.Tail != 0 {
					t.Fatalf("tail %d, %v", report.Tail, err)
				}
				if !bytes.Equal(out.Bytes(), want) {
					t.Errorf("%d bytes, want %d, or other ones", out.Len(), len(want))
				}
			})
		}
	}
}
