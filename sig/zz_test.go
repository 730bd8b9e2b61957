package sig_test

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

func BenchmarkT(b *testing.B) {
	for _, size := range []int{512, 4096} {
		f := sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1, BlockSize: size}
		for _, total := range []int{size, 2 * size, 8192, 65536} {
			data := make([]byte, total)
			stream := make([]byte, f.StreamLen(int64(len(data))))
			f.Protect(stream, data)
			t, err := sig.NewTransform(sig.TransformConfig{In: f, Out: sig.Format{}, CheckMask: sig.MaskAll})
			if err != nil {
				b.Fatal(err)
			}
			s := sig.Interleaved(f, stream)
			b.Run(fmt.Sprintf("%d/%d", size, total), func(b *testing.B) {
				b.SetBytes(int64(total))
				var bad sig.First
				for b.Loop() {
					t.Run(s, s, total/size, 0, &bad)
				}
			})
		}
	}
}
