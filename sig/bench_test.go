package sig_test

import (
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

// Streams of 64 KiB of data, which fit a second-level cache.
func BenchmarkStream(b *testing.B) {
	for _, spec := range []string{"t10dif", "t10dif,guard=csum", "crc32", "crc32c", "crc64"} {
		for _, size := range []int{512, 4096} {
			f := must(sig.ParseFormat(spec))
			f.BlockSize = size
			data := make([]byte, 64<<10)
			stream := make([]byte, f.StreamLen(int64(len(data))))
			other := sig.Format{Type: sig.CRC32C, BlockSize: 4608 - size}
			out := make([]byte, other.StreamLen(int64(len(data))))
			for _, op := range []struct {
				name string
				run  func() error
			}{
				{"generate", func() error { return f.Generate(stream) }},
				{"verify", func() error { return f.Verify(stream) }},
				{"protect", func() error { return second(f.Protect(stream, data)) }},
				{"strip", func() error { return second(f.Strip(data, stream)) }},
				{"convert", func() error { return second(f.Convert(other, out, stream)) }},
			} {
				b.Run(fmt.Sprintf("%v/%s", f, op.name), func(b *testing.B) {
					b.SetBytes(int64(len(data)))
					must(f.Protect(stream, data))
					for b.Loop() {
						noErr(b, op.run())
					}
				})
			}
		}
	}
}

// The NVMe types beside those whose guard or CRC is the same.
func BenchmarkNVMe(b *testing.B) {
	for _, text := range []string{"t10dif:512", "nvme16:512", "crc32c:4096", "nvme32:4096", "crc64:4096", "nvme64:4096", "nvme64:4096,meta=64"} {
		f := must(sig.ParseFormat(text))
		stream := make([]byte, f.StreamLen(128<<10))
		noErr(b, f.Generate(stream))
		b.Run(text, func(b *testing.B) {
			b.SetBytes(128 << 10)
			b.ReportAllocs()
			for b.Loop() {
				noErr(b, f.Verify(stream))
			}
		})
	}
}
