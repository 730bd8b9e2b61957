// Package call measures calls of package sig with one block, beside those of other checksums.
package call

import (
	"hash/crc32"
	"testing"

	"github.com/minio/crc64nvme"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/sig"
)

// BenchmarkBlock processes 512 bytes in each call, without a prepared Transform and with one.
func BenchmarkBlock(b *testing.B) {
	for _, t := range []sig.Type{sig.T10DIF, sig.CRC32C, sig.CRC64, sig.NVMe64} {
		f := sig.Format{Type: t}
		buf := make([]byte, f.Stride())
		run := func(name string, call func() error) {
			b.Run(t.String()+"/"+name, func(b *testing.B) {
				for b.Loop() {
					fatal.If(b, call())
				}
			})
		}
		run("Generate", func() error { return f.Generate(buf) })
		run("Verify", func() error { return f.Verify(buf) })
		check, err := sig.NewTransform(sig.TransformConfig{In: f})
		fatal.If(b, err)
		blocks := sig.Interleaved(f, buf)
		run("Transform", func() error { check.Run(blocks, blocks, 1, 0, nil); return nil })
	}
	data, table := make([]byte, 512), crc32.MakeTable(crc32.Castagnoli)
	b.Run("hash-crc32", func(b *testing.B) {
		for b.Loop() {
			crc32.Checksum(data, table)
		}
	})
	b.Run("minio-crc64nvme", func(b *testing.B) {
		for b.Loop() {
			crc64nvme.Checksum(data)
		}
	})
}
