package isal

import (
	"fmt"

	"github.com/softmkey/softmkey/bench/measure"
	"github.com/softmkey/softmkey/sig"
)

// A Row is one operation of ours beside the peer's.
type Row struct {
	Operation  string
	BlockSize  int
	Ours, Peer measure.Case
	PeerName   string
}

// count is a Reporter that counts bad blocks.
type count int

func (c *count) BadBlock(sig.Error) bool { *c++; return true }

// Rows returns every comparison of signatures, each on data bytes of data in blocks of
// 512 and of 4096 bytes.
func Rows(data int) []Row {
	var rows []Row
	for _, size := range []int{512, 4096} {
		rows = append(rows, difRows(data, size)...)
		for _, s := range []struct {
			t    sig.Type
			peer Sum
			name string
		}{
			{sig.CRC32, SumCRC32, "crc32_ieee"},
			{sig.CRC32C, SumCRC32C, "crc32_iscsi"},
			{sig.CRC64, SumCRC64, "crc64_ecma_refl"},
		} {
			rows = append(rows, crcRow(data, size, s.t, s.peer, s.name))
		}
		rows = append(rows, csumRows(data, size)...)
	}
	return rows
}

// ours returns a case that runs a transform.
func ours(in, out sig.Format, dst, src sig.Blocks, n, data int) measure.Case {
	t, err := sig.NewTransform(sig.TransformConfig{In: in, Out: out, CheckMask: sig.MaskAll})
	if err != nil {
		panic(err)
	}
	return measure.Case{Name: "softmkey", Bytes: data, Run: func(times int) {
		var bad count
		for range times {
			t.Run(dst, src, n, 0, &bad)
		}
		if bad != 0 {
			panic("bad blocks in a benchmark")
		}
	}}
}

// buffers are a stream with right fields and its data, twice: one for each side.
type buffers struct {
	stream, data []byte
}

func newBuffers(f sig.Format, data int) buffers {
	b := buffers{make([]byte, f.StreamLen(int64(data))), make([]byte, data)}
	for i := range b.data {
		b.data[i] = byte(i*31 + i>>8)
	}
	if _, err := f.Protect(b.stream, b.data); err != nil {
		panic(err)
	}
	return b
}

func difRows(data, size int) []Row {
	f := sig.Format{Type: sig.T10DIF, BlockSize: size, AppTag: 0x5678, RefTag: 1}
	d := DIF{BlockSize: size, AppTag: f.AppTag, RefTag: f.RefTag}
	none := sig.Format{}
	n := data / size
	b := newBuffers(f, data)
	stream, plain := sig.Interleaved(f, b.stream), sig.Separate(f, b.data, nil)
	row := func(op string, our measure.Case, peer func()) Row {
		return Row{
			Operation: "T10-DIF " + op, BlockSize: size, Ours: our, PeerName: "loop over ISA-L",
			Peer: measure.Case{Name: "peer", Bytes: data, Run: func(times int) {
				for range times {
					peer()
				}
			}},
		}
	}
	whole := func(bad int) {
		if bad != n {
			panic(fmt.Sprintf("peer found block %d bad", bad))
		}
	}
	return []Row{
		row("generate in place", ours(none, f, stream, stream, n, data), func() { d.Generate(b.stream, n) }),
		row("verify", ours(f, none, stream, stream, n, data), func() { whole(d.Verify(b.stream, n)) }),
		row("generate, copying", ours(none, f, stream, plain, n, data), func() { d.GenerateCopy(b.stream, b.data, n) }),
		row("verify, copying", ours(f, none, plain, stream, n, data), func() { whole(d.VerifyCopy(b.data, b.stream, n)) }),
	}
}

func crcRow(data, size int, t sig.Type, peer Sum, name string) Row {
	f := sig.Format{Type: t, BlockSize: size}
	n := data / size
	b := newBuffers(f, data)
	stream := sig.Interleaved(f, b.stream)
	return Row{
		Operation: t.String() + " verify", BlockSize: size, PeerName: name,
		Ours: ours(f, sig.Format{}, stream, stream, n, data),
		Peer: measure.Case{Name: "peer", Bytes: data, Run: func(times int) {
			for range times {
				peer.Run(b.stream, f.Stride(), size, n)
			}
		}},
	}
}

func csumRows(data, size int) []Row {
	f := sig.Format{Type: sig.T10DIF, Guard: sig.GuardCSUM, BlockSize: size}
	n := data / size
	b := newBuffers(f, data)
	stream, plain := sig.Interleaved(f, b.stream), sig.Separate(f, b.data, nil)
	copied := make([]byte, data)
	peer := measure.Case{Name: "peer", Bytes: data, Run: func(times int) {
		for range times {
			Copy(copied, b.data)
		}
	}}
	none := sig.Format{}
	return []Row{
		{"checksum guard verify", size, ours(f, none, stream, stream, n, data), peer, "memcpy"},
		{"checksum guard generate, copying", size, ours(none, f, stream, plain, n, data), peer, "memcpy"},
	}
}
