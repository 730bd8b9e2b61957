package crc

import (
	"fmt"
	"github.com/softmkey/softmkey/internal/base/cpu"
	"testing"
)

// benchData is the size of a run, 64 KiB as in a step of a memory key.
const benchData = 64 << 10

func BenchmarkRun(b *testing.B) {
	for _, tier := range cpu.Available() {
		for kind := range kinds {
			for _, size := range []int{512, 4096} {
				for _, op := range []string{"generate", "verify", "generate-copy", "verify-copy"} {
					b.Run(fmt.Sprintf("%v/%v/%d/%s", tier, kind, size, op), func(b *testing.B) {
						benchmarkRun(b, newPlan(tier, kind, size, false), op)
					})
				}
			}
		}
	}
}

func benchmarkRun(b *testing.B, p Plan, op string) {
	n := benchData / p.size
	stride := p.size + p.kind.FieldSize()
	stream := make([]byte, n*stride)
	data := make([]byte, benchData)
	for i := range data {
		data[i] = byte(i * 31)
	}
	want := make([]uint64, n)
	j := Job{Src: stream, SrcStride: stride, Fields: stream[p.size:], FieldStride: stride}
	if op == "generate-copy" {
		j.Src, j.SrcStride, j.Dst, j.DstStride = data, p.size, stream, stride
	}
	if op == "verify-copy" {
		j.Dst, j.DstStride = data, p.size
	}
	p.Generate(want, &Job{Src: stream, SrcStride: stride, Fields: stream[p.size:], FieldStride: stride})
	b.SetBytes(benchData)
	for b.Loop() {
		if op == "verify" || op == "verify-copy" {
			if p.Verify(want, &j) != 0 {
				b.Fatal("bad field")
			}
		} else {
			p.Generate(want, &j)
		}
	}
}
