package bench

import (
	"fmt"
	"math/rand/v2"

	"github.com/softmkey/softmkey/sig"
)

// DataSize is the size of the data of a call in bytes. Data and copy fit the
// second-level cache together, and a queue pair processes steps of this size.
const DataSize = 64 << 10

// A SigOp is an operation on a run of blocks.
type SigOp string

// The operations.
const (
	Generate SigOp = "generate in place" // writes the fields of Stream
	Verify   SigOp = "verify"            // checks the fields of Stream
	Protect  SigOp = "generate, copying" // copies Data to Stream and writes the fields there
	Strip    SigOp = "verify, copying"   // copies the data of Stream to Data and checks the fields
)

// A SigRow is a row of package sig with its data, so that a peer can process the same
// memory.
type SigRow struct {
	Row
	Op     SigOp
	Format sig.Format
	Stream []byte // blocks, each followed by its correct field
	Data   []byte // the same blocks without fields
}

// Blocks returns the number of blocks.
func (r *SigRow) Blocks() int { return len(r.Data) / r.Format.BlockSize }

// Sig returns the rows of every type, operation and size of blocks.
func Sig() []SigRow {
	tagged := sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1}
	checksum := tagged
	checksum.Guard = sig.GuardCSUM
	var rows []SigRow
	for _, size := range []int{512, 4096} {
		for _, f := range []struct {
			name   string
			format sig.Format
		}{
			{"T10-DIF", tagged},
			{"CSUM", checksum},
			{"CRC32", sig.Format{Type: sig.CRC32}},
			{"CRC32C", sig.Format{Type: sig.CRC32C}},
			{"CRC64", sig.Format{Type: sig.CRC64}},
		} {
			f.format.BlockSize = size
			for _, op := range []SigOp{Generate, Verify, Protect, Strip} {
				rows = append(rows, newSigRow(f.name, op, f.format))
			}
		}
	}
	return rows
}

func newSigRow(name string, op SigOp, f sig.Format) SigRow {
	r := SigRow{Op: op, Format: f, Data: random(DataSize), Stream: make([]byte, f.StreamLen(DataSize))}
	_, err := f.Protect(r.Stream, r.Data)
	must(err)
	stream, plain := sig.Interleaved(f, r.Stream), sig.Separate(sig.Format{BlockSize: f.BlockSize}, r.Data, nil)
	in, out, src, dst := f, sig.Format{}, stream, stream
	switch op {
	case Generate:
		in, out = out, in
	case Protect:
		in, out, src = out, in, plain
	case Strip:
		dst = plain
	}
	r.Row = Row{
		Group: "sig", Operation: name + " " + string(op), Size: f.BlockSize, Unit: GBps,
		Ours: transform(in, out, dst, src, r.Blocks()),
	}
	if op == Protect || op == Strip {
		r.Limit = new(Copy())
	}
	return r
}

// Convert returns the rows of conversions from one format to another. No peer has this
// operation.
func Convert() []Row {
	from := sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 1}
	moved := from
	moved.RefTag = 1000
	var rows []Row
	for _, to := range []sig.Format{moved, {Type: sig.CRC32C, BlockSize: 512}, {Type: sig.CRC64, BlockSize: 512}} {
		data := random(DataSize)
		stream, converted := make([]byte, from.StreamLen(DataSize)), make([]byte, to.StreamLen(DataSize))
		_, err := from.Protect(stream, data)
		must(err)
		name := "to " + to.Type.String()
		if to.Type == from.Type {
			name = "to other tags"
		}
		rows = append(rows, Row{
			Group: "sig", Operation: "T10-DIF convert " + name, Size: 512, Unit: GBps,
			Ours:  transform(from, to, sig.Interleaved(to, converted), sig.Interleaved(from, stream), DataSize/512),
			Limit: new(Copy()),
		})
	}
	return rows
}

// transform returns a case that runs a Transform over n blocks.
func transform(in, out sig.Format, dst, src sig.Blocks, n int) Case {
	t, err := sig.NewTransform(sig.TransformConfig{In: in, Out: out})
	must(err)
	return Case{Name: "softmkey", Work: DataSize, Run: func(times int) {
		for range times {
			if err := t.Run(dst, src, n, 0, nil); err != nil {
				panic(fmt.Sprintf("bench: a good stream was found bad: %v", err))
			}
		}
	}}
}

// Copy returns the case that copies DataSize bytes with Go's copy. It is the limit of all
// operations that copy.
func Copy() Case {
	dst, src := make([]byte, DataSize), random(DataSize)
	return Case{Name: "copy", Work: DataSize, Run: func(times int) {
		for range times {
			copy(dst, src)
		}
	}}
}

// random returns n bytes, the same ones in every run.
func random(n int) []byte {
	r := rand.New(rand.NewPCG(0x50f7, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
